package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// Bounds on arguments from strangers.
const (
	maxInput = 256 << 10 // bytes
	maxDepth = 64        // of nesting
)

var (
	maxSafe = big.NewInt(1 << 53)

	errTooLarge = errors.New("is larger than 256 KiB")
	errTooDeep  = errors.New("is nested more than 64 levels deep")
	errUTF8     = errors.New("is not valid UTF-8")
	errJSON     = errors.New("is not valid JSON")
	errInteger  = errors.New("has an integer beyond ±2^53, which would not survive; send it as a string")
)

// Canonical gives the RFC 8785 form of one JSON value: these bytes are hashed,
// shown, approved and executed. Input that is too large or deep, is not UTF-8,
// repeats a key, or holds an integer beyond ±2^53 is refused, because two
// different inputs could then share one form. Errors never echo the input.
func Canonical(raw []byte) (json.RawMessage, error) {
	if len(raw) > maxInput {
		return nil, errTooLarge
	}
	if !utf8.Valid(raw) {
		return nil, errUTF8
	}
	if err := scan(raw); err != nil {
		return nil, err
	}
	if b := bytes.TrimSpace(raw); len(b) > 0 && b[0] != '{' && b[0] != '[' {
		// jcs takes objects and arrays only at the top.
		arr, err := jcs.Transform(append(append([]byte{'['}, b...), ']'))
		if err != nil {
			return nil, errJSON
		}
		return arr[1 : len(arr)-1], nil
	}
	out, err := jcs.Transform(raw)
	if err != nil {
		return nil, errJSON
	}
	return out, nil
}

// scan walks the tokens once, for the bounds that the canonicaliser lacks.
func scan(raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	depth, seen := 0, false
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			if !seen || depth != 0 {
				return errJSON
			}
			return nil
		}
		if err != nil {
			return errJSON
		}
		seen = true
		switch t := tok.(type) {
		case json.Delim:
			if t == '{' || t == '[' {
				if depth++; depth > maxDepth {
					return errTooDeep
				}
			} else {
				depth--
			}
		case json.Number:
			if !strings.ContainsAny(t.String(), ".eE") {
				n, ok := new(big.Int).SetString(t.String(), 10)
				if !ok || n.CmpAbs(maxSafe) > 0 {
					return errInteger
				}
			}
		}
	}
}

// HashOf is the lower-case hex SHA-256 of b.
func HashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// claimHash identifies input as it came: its canonical form where it has one,
// else its bytes, so that a malformed request can be journalled, too.
func claimHash(raw []byte) string {
	if c, err := Canonical(raw); err == nil {
		return HashOf(c)
	}
	return HashOf(raw)
}

// Digest binds everything about an approval that must not change between the
// question and the run: id, capability, contract revision, actor, surface,
// origin, canonical input, requirements and expiry. A stored field that was
// tampered with no longer matches the stored digest.
func Digest(a Approval) (string, error) {
	var expires int64
	if !a.ExpiresAt.IsZero() {
		expires = a.ExpiresAt.UnixMilli()
	}
	b, err := json.Marshal(map[string]any{
		"id": a.ID, "capability": a.CapabilityID, "revision": a.Revision,
		"actor": a.Actor, "surface": a.Surface, "origin": a.Origin,
		"input": a.Input, "side_effect": a.SideEffect, "risk": a.Risk,
		"requirements": a.Requirements, "expires": expires,
	})
	if err != nil {
		return "", fmt.Errorf("encode approval: %w", err)
	}
	c, err := jcs.Transform(b)
	if err != nil {
		return "", fmt.Errorf("canonicalise approval: %w", err)
	}
	return HashOf(c), nil
}
