package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// Bounds on arguments from strangers.
const (
	maxInput = 256 << 10 // bytes
	maxDepth = 64        // of nesting
	maxSafe  = 1 << 53   // beyond it, neighbouring integers share one float64
	expForm  = 1e21      // from here on the canonical form has an exponent
)

var (
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
	if err := scan(raw, maxDepth, survives); err != nil {
		return nil, err
	}
	return encode(raw)
}

// encode gives the RFC 8785 form without the bounds. The canonicaliser takes
// objects and arrays only, so the value goes in and out as an array's element.
func encode(raw []byte) (json.RawMessage, error) {
	arr, err := jcs.Transform(slices.Concat([]byte{'['}, raw, []byte{']'}))
	if err != nil {
		return nil, errJSON
	}
	return arr[1 : len(arr)-1], nil
}

// scan walks the tokens once, for the bounds that the canonicaliser lacks.
func scan(raw []byte, maxDepth int, number func(string) error) error {
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
			if err := number(t.String()); err != nil {
				return err
			}
		}
	}
}

// survives refuses numbers whose canonical form is, or would be read back as, an
// integer that a float64 cannot tell from its neighbours. So the canonical form
// of anything accepted is accepted again and is its own canonical form.
func survives(n string) error {
	if !strings.ContainsAny(n, ".eE") {
		if len(n) > len("-9007199254740992") {
			return errInteger
		}
		if i, ok := new(big.Int).SetString(n, 10); !ok || i.CmpAbs(big.NewInt(maxSafe)) > 0 {
			return errInteger
		}
		return nil
	}
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return errJSON
	}
	if a := math.Abs(f); a > maxSafe && a < expForm {
		return errInteger
	}
	return nil
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
