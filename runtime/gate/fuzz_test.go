package gate_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gowebpki/jcs"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// Whatever a stranger sends as arguments ends in an envelope.
func FuzzArguments(f *testing.F) {
	schemas := []string{
		strict, `{}`, `true`,
		`{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":9,"multipleOf":0.1},"s":{"type":"string","pattern":"^(a+)+$","maxLength":4,"format":"email"},
		 "l":{"type":"array","items":{"$ref":"#"},"uniqueItems":true,"contains":{"const":1}}},"patternProperties":{"^x":{"enum":[1,"a",null]}},"propertyNames":{"minLength":1},"minProperties":1}`,
		`{"oneOf":[{"type":"null"},{"type":"array","prefixItems":[{"type":"boolean"}]},{"not":{"type":"object"}}],"unevaluatedProperties":false}`,
	}
	for _, s := range []string{
		`{"who":"carol"}`, `{`, ``, `null`, `[[[[]]]]`, `{"n":1e308,"s":"aaaaaaaa!"}`, `{"l":[1,1]}`, `{"who":"\ud800"}`, `{"a":1,"a":2}`,
		"\xff", `9007199254740993`, `{"n":5e-324}`, `{"x":"b","":1}`, `{"l":[{"l":[{"l":[]}]}]}`, `-0`, `"\u0000"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, schema := range schemas {
			w := one(t, gate.Config{}, kit{in: schema})
			c := call("k")
			c.Input = in
			res := w.invoke(c)
			switch {
			case res.Status == completed && w.runs() == 1:
			case code(res) == capability.CodeInputInvalid && len(res.Error.Issues) > 0 && w.runs() == 0:
			default:
				t.Fatalf("%q for %s ended %s %s after %d runs", in, schema, res.Status, code(res), w.runs())
			}
			equal(t, "again", w.invoke(c), res)
		}
	})
}

// A schema from a stranger is refused or works; it never takes the process down.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		strict, `{}`, `true`, `5`, `null`, `[]`, `{"type":7}`, `{"$ref":"#"}`, `{"$ref":"http://example.org/x"}`, `{"$ref":"file:///etc/passwd"}`,
		`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, `{"pattern":"("}`, `{"pattern":"(?<=x)y"}`,
		`{"minimum":1e9999999}`, `{"minimum":1e-999999}`, `{"multipleOf":1e-999999}`, `{"multipleOf":0}`, `{"multipleOf":1e-9999999}`, `{"maxLength":-1}`, `{"maxLength":1e99}`, `{"$schema":"moon"}`,
		`{"$id":"moothall:hall.act","$defs":{"a":{"$id":"moothall:hall.act"}}}`, `{"$dynamicRef":"#x","$dynamicAnchor":"x"}`, `{"$anchor":""}`,
		`{"$vocabulary":{"moon":true}}`, `{"const":1e9999999}`, `{"enum":[]}`, `{"properties":{"a":false},"required":["a"]}`, `{"format":"regex","pattern":"a{1000}{1000}"}`,
		`{"$schema":"http://json-schema.org/draft-04/schema#","minimum":1,"exclusiveMinimum":true}`, "\xff", `{"a":`, ``,
	} {
		f.Add([]byte(s), []byte(`{"who":"carol"}`))
		f.Add([]byte(s), []byte(`1e300`))
	}
	f.Fuzz(func(t *testing.T, schema, in []byte) {
		begun := time.Now()
		c := makeTool(func() *world { return nil }, kit{in: string(schema), out: string(schema)})
		r, err := capability.NewRegistry(c)
		if err != nil {
			return
		}
		w := newWorld(t, gate.Config{})
		cfg := w.cfg
		cfg.Registry = r
		g, err := gate.New(cfg)
		if err != nil {
			return
		}
		q := call("k")
		q.Input = json.RawMessage(in)
		if res, err := g.Invoke(t.Context(), q); err != nil || res.Status == "" {
			t.Fatalf("ended %+v, %v", res, err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Fatalf("%q and %q took %s", schema, in, took)
		}
	})
}

// The canonical form is what a library of its own makes of the same bytes, and
// what it refuses is refused.
func FuzzCanonicalAgrees(f *testing.F) {
	for _, s := range []string{
		`{"b":1,"a":[true,false,null]}`, `"\ud83d\ude00\u0000\/\b\f\n\r\t\"\\\u007f"`, `"\ud800"`, `"\udc00\ud800"`, `[1e21,1e-7,-0,0.1,1E+2,123456789012345678]`,
		`{"\ud83d\ude00":1,"\ufb33":2,"\ue000":3,"a":4}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `01`, `1.`, `.1`, `-`, `+1`, `1e`, `nul`, `truex`, `[1,]`, `{"a":}`, `{,}`, `[`, ` 1 `, `1 2`,
		"\"\t\"", "\u00a01", `"`, `"\`, `"\u12`, `"\x"`, `-0.0`, `5e-324`, `1e400`, `-1e400`, `9007199254740992`, `9007199254740993`, `999999999999999`, "\"\u2028\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := gate.Canonical(in)
		want, werr := reference(in)
		if (err == nil) != (werr == nil) {
			t.Fatalf("%q: got %s, %v; want %s, %v", in, got, err, want, werr)
		}
		if err == nil && string(got) != string(want) {
			t.Fatalf("%q: got %s; want %s", in, got, want)
		}
		if err != nil {
			return
		}
		again, err := gate.Canonical(got)
		if err != nil || string(again) != string(got) {
			t.Fatalf("%q: its form %s became %s, %v", in, got, again, err)
		}
	})
}

var errReference = errors.New("refused")

// reference makes the canonical form with the standard library's decoder and the
// jcs library.
func reference(in []byte) ([]byte, error) {
	if len(in) > 256<<10 || !utf8.Valid(in) || gate.Scan(in, gate.MaxDepth, gate.Survives) != nil {
		return nil, errReference
	}
	arr, err := jcs.Transform(slices.Concat([]byte{'['}, in, []byte{']'}))
	if err != nil {
		return nil, err
	}
	return arr[1 : len(arr)-1], nil
}
