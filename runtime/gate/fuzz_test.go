package gate_test

import (
	"encoding/json"
	"testing"
	"time"

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
