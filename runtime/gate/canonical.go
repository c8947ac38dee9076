package gate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"moothall/runtime/capability"
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
	c, _, err := canonical(raw)
	return c, err
}

// canonical also gives the tree that the form was written from.
func canonical(raw []byte) (json.RawMessage, any, error) {
	if len(raw) > maxInput {
		return nil, nil, errTooLarge
	}
	if !utf8.Valid(raw) {
		return nil, nil, errUTF8
	}
	v, err := parse(raw, maxDepth, survives)
	if err != nil {
		return nil, nil, err
	}
	return write(make([]byte, 0, len(raw)), v), v, nil
}

// scan walks the tokens of a schema or an output once, for its bounds.
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
	var s [2 * sha256.Size]byte
	hex.Encode(s[:], h[:])
	return string(s[:])
}

// Digest binds everything about an approval that must not change between the
// question and the run: id, capability, contract revision, actor, surface,
// origin, canonical input, requirements, reasons, when and for what execution it
// was asked, and expiry. A stored field of these that was tampered with no longer
// matches the stored digest; votes are weighed again at the run.
//
// The form is RFC 8785 with the input in it byte for byte; one that is no JSON,
// which only tampering can make, is an error.
func Digest(a Approval) (string, error) {
	if !json.Valid(a.Input) {
		return "", errors.New("the stored input is not JSON")
	}
	var expires int64
	if !a.ExpiresAt.IsZero() {
		expires = a.ExpiresAt.UnixMilli()
	}
	var few [1 << 10]byte // most fit in
	b := few[:0]
	b = append(b, `{"actor":`...)
	b = digestActor(b, a.Actor)
	b = append(b, `,"capability":`...)
	b = quote(b, a.CapabilityID)
	b = append(b, `,"correlation":`...)
	b = quote(b, a.CorrelationID)
	b = append(b, `,"execution":`...)
	b = quote(b, a.ExecutionID)
	b = append(b, `,"expires":`...)
	b = strconv.AppendInt(b, expires, 10)
	b = append(b, `,"id":`...)
	b = quote(b, a.ID)
	b = append(b, `,"input":`...)
	b = append(b, a.Input...)
	b = append(b, `,"origin":{"lane":`...)
	b = quote(b, a.Origin.Lane)
	b = append(b, `,"place":`...)
	b = quote(b, a.Origin.Place)
	b = append(b, `,"ref":`...)
	b = quote(b, a.Origin.Ref)
	b = append(b, `},"reasons":`...)
	b = quoteAll(b, a.Reasons)
	b = append(b, `,"requested":`...)
	b = strconv.AppendInt(b, a.RequestedAt.UnixMilli(), 10)
	b = append(b, `,"requirements":{"groups":`...)
	b = quoteAll(b, a.Requirements.Groups)
	b = append(b, `,"quorum":`...)
	b = strconv.AppendInt(b, int64(a.Requirements.Quorum), 10)
	b = append(b, `,"types":`...)
	b = quoteAll(b, a.Requirements.Types)
	b = append(b, `},"revision":`...)
	b = quote(b, a.Revision)
	b = append(b, `,"risk":`...)
	b = quote(b, string(a.Risk))
	b = append(b, `,"side_effect":`...)
	b = quote(b, string(a.SideEffect))
	b = append(b, `,"surface":`...)
	b = quote(b, string(a.Surface))
	b = append(b, '}')
	return HashOf(b), nil
}

func digestActor(b []byte, a capability.Actor) []byte {
	b = append(b, `{"attributes":{`...)
	for i, k := range slices.SortedFunc(maps.Keys(a.Attributes), byUnits) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(quote(b, k), ':')
		b = quote(b, a.Attributes[k])
	}
	b = append(b, `},"id":`...)
	b = quote(b, a.ID)
	b = append(b, `,"kind":`...)
	b = quote(b, string(a.Kind))
	b = append(b, `,"name":`...)
	b = quote(b, a.Name)
	return append(b, '}')
}

func quoteAll(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = quote(b, s)
	}
	return append(b, ']')
}
