package gate_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

const withDefaults = `{"type":"object","additionalProperties":false,"required":["who"],
	"properties":{"who":{"type":"string"},"limit":{"type":"integer","default":10},
		"opts":{"$ref":"#/$defs/opts"},
		"rows":{"type":"array","items":{"type":"object","properties":{"n":{"default":1}}}}},
	"$defs":{"opts":{"type":"object","default":{},"properties":{"deep":{"type":"boolean","default":false},"big":{"default":9007199254740991}}}}}`

func TestR035Defaults(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"R035 left out": {`{"who":"a"}`, `{"limit":10,"opts":{"big":9007199254740991,"deep":false},"who":"a"}`},
		"given":         {`{"who":"a","limit":3,"opts":{"deep":true,"big":1}}`, `{"limit":3,"opts":{"big":1,"deep":true},"who":"a"}`},
		"null is given": {`{"who":"a","limit":1,"opts":{"big":null}}`, `{"limit":1,"opts":{"big":null,"deep":false},"who":"a"}`},
		"in a list":     {`{"who":"a","limit":1,"opts":{},"rows":[{},{"n":2}]}`, `{"limit":1,"opts":{"big":9007199254740991,"deep":false},"rows":[{"n":1},{"n":2}],"who":"a"}`},
	} {
		t.Run(name, func(t *testing.T) {
			var seen string
			spy := rule{"spy", nil, func(_ context.Context, r policy.Request) (policy.Decision, error) {
				seen = string(r.Input)
				return allow, nil
			}}
			w := one(t, gate.Config{Policies: []policy.Policy{spy}}, kit{in: withDefaults, meta: gated})
			c := call("k")
			c.Input = json.RawMessage(tt.in)
			res := w.invoke(c)
			wants(t, res, waits, "")
			a := w.approval(res.ApprovalID)
			equal(t, "a policy sees", seen, tt.want)
			equal(t, "people see", string(a.Input), tt.want)
			equal(t, "hash", a.InputHash, gate.HashOf([]byte(tt.want)))
			if _, err := w.vote(a.ID, bob, true); err != nil {
				t.Fatal(err)
			}
			wants(t, w.resume(a.ID, gate.ResumeOptions{}), completed, "")
			equal(t, "what runs", w.inputs, []string{tt.want})
			wants(t, w.invoke(c), waits, "") // the same claim
		})
	}
}

// R179: a listing shows the schema as it is, defaults left out being allowed.
func TestR179TheListedSchemaIsTheInputs(t *testing.T) {
	w := one(t, gate.Config{}, kit{in: withDefaults})
	for range 2 {
		list, err := w.Describe(t.Context(), capability.SurfaceCommand, user(alice))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "schema", string(list[0].InputSchema), withDefaults)
		clear(list[0].InputSchema)
	}
}

func TestDefaultsAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		schema, in string
		ok         bool
	}{
		"a default that is wrong":     {`{"properties":{"n":{"type":"integer","default":"x"}}}`, `{}`, false},
		"a flood":                     {`{"items":{"properties":{"n":{"default":"` + strings.Repeat("x", 1000) + `"}}}}`, `[` + strings.Repeat(`{},`, 1000) + `{}]`, false},
		"a schema within itself":      {`{"properties":{"n":{"$ref":"#"}},"default":{}}`, `{}`, true},
		"one that is no object":       {`true`, `{}`, true},
		"a default beyond 2^53":       {`{"properties":{"n":{"default":9007199254740993}}}`, `{}`, false},
		"a reference to nowhere else": {`{"properties":{"n":{"$ref":"#/$defs/a~1b","default":3}},"$defs":{"a/b":{"type":"integer"}}}`, `{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{in: tt.schema})
			c := call("k")
			c.Input = json.RawMessage(tt.in)
			if res := w.invoke(c); (res.Error == nil) != tt.ok {
				t.Fatalf("ended %v", res.Error)
			} else if !tt.ok && code(res) != capability.CodeInputInvalid {
				t.Fatalf("code %s", code(res))
			}
		})
	}
}
