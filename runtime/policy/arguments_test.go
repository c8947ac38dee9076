package policy_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"moothall/runtime/policy"
)

func TestArguments(t *testing.T) {
	const a, d, r = policy.StanceAllow, policy.StanceDeny, policy.StanceRequireApproval
	amount := policy.Limit{Pointer: "/amount", Min: new(0.0), Max: new(100.0)}
	maybe := amount
	maybe.Optional = true
	reason := policy.Limit{Pointer: "/why", MaxLength: 5}
	to := policy.Limit{Pointer: "/to", OneOf: []any{"hall", 7, nil, true}}
	for _, tt := range []struct {
		name  string
		limit policy.Limit
		input string
		want  policy.Stance
	}{
		{"within", amount, `{"amount":99.5}`, a},
		{"at the upper bound", amount, `{"amount":100}`, a},
		{"at the lower bound", amount, `{"amount":0}`, a},
		{"above", amount, `{"amount":100.01}`, r},
		{"below", amount, `{"amount":-1}`, r},
		{"huge", amount, `{"amount":1e300}`, r},
		{"not a number at all", amount, `{"amount":1e999}`, d},
		{"a number as text", amount, `{"amount":"5"}`, d},
		{"null", amount, `{"amount":null}`, d},
		{"a list", amount, `{"amount":[5]}`, d},
		{"missing", amount, `{}`, d},
		{"in other letters", amount, `{"Amount":5}`, d},
		{"missing, and may be", maybe, `{}`, a},
		{"null, though it may be missing", maybe, `{"amount":null}`, d},
		{"another type, though it may be missing", maybe, `{"amount":"5"}`, d},
		{"no object", amount, `7`, d},
		{"no JSON", amount, `{"amount":5`, d},
		{"two values", amount, `{"amount":5}{"amount":500}`, d},
		{"nothing", amount, ``, d},
		{"short enough", reason, `{"why":"größe"}`, a},
		{"too long", reason, `{"why":"größer"}`, r},
		{"a text that is a number", reason, `{"why":5}`, d},
		{"listed", to, `{"to":"hall"}`, a},
		{"listed, another way to write it", to, `{"to":7.0}`, a},
		{"null, listed", to, `{"to":null}`, a},
		{"true, listed", to, `{"to":true}`, a},
		{"not listed", to, `{"to":"Hall"}`, r},
		{"the listed value as text", to, `{"to":"7"}`, r},
		{"deep", policy.Limit{Pointer: "/a~1b/1/~0c", Max: new(1.0)}, `{"a/b":[{},{"~c":1}]}`, a},
		{"deep and above", policy.Limit{Pointer: "/a~1b/1/~0c", Max: new(1.0)}, `{"a/b":[{},{"~c":2}]}`, r},
		{"beyond the list", policy.Limit{Pointer: "/l/2", Max: new(1.0)}, `{"l":[1,1]}`, d},
		{"an index written oddly", policy.Limit{Pointer: "/l/01", Max: new(1.0)}, `{"l":[1,1]}`, d},
		{"an index below nought", policy.Limit{Pointer: "/l/-1", Max: new(1.0)}, `{"l":[1,1]}`, d},
		{"the whole", policy.Limit{OneOf: []any{map[string]any{"a": 1}}}, `{"a":1}`, a},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := must(t)(policy.Arguments(ask, tt.limit))
			if got := stance(t, p, policy.Request{Input: json.RawMessage(tt.input)}); got != tt.want {
				t.Errorf("%s; want %s", got, tt.want)
			}
		})
	}
	for name, l := range map[string]policy.Limit{
		"no number": {Pointer: "/a", Max: new(math.NaN())}, "endless": {Pointer: "/a", Min: new(math.Inf(1))},
		"the wrong way round": {Pointer: "/a", Min: new(2.0), Max: new(1.0)},
	} {
		if _, err := policy.Arguments(ask, l); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// What was not measured is denied even beside a bound that only asks, and
// whatever comes first.
func TestArgumentsDenyBeforeTheyAsk(t *testing.T) {
	p := must(t)(policy.Arguments(ask, policy.Limit{Pointer: "/a", Max: new(1.0)}, policy.Limit{Pointer: "/b", Max: new(1.0)}))
	o := evaluateInput(t, p, `{"a":2,"b":"secret"}`)
	if o.Stance != policy.StanceDeny || o.Message != "The argument /b is not a number." || strings.Contains(o.Message, "secret") {
		t.Errorf("%+v", o)
	}
	o = evaluateInput(t, p, `{"a":2,"b":1}`)
	if o.Stance != policy.StanceRequireApproval || o.Records[0].Metadata["argument"] != "/a" {
		t.Errorf("%+v", o)
	}
}

func evaluateInput(t *testing.T, p policy.Policy, input string) policy.Outcome {
	t.Helper()
	return policy.Evaluate(t.Context(), []policy.Policy{p}, policy.Request{Phase: policy.PhaseInvocation, Input: json.RawMessage(input)}, time.Minute)
}

// Whatever stands in the arguments: an answer, and allow only for what a plain
// reading of the JSON finds within the bound.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"amount":5}`, `{"amount":1e308}`, `{"amount":-0}`, `[]`, `{"amount":5,"amount":500}`, "{\"amount\xff\":1}", strings.Repeat("[", 20000)} {
		f.Add([]byte(s), "/amount")
	}
	f.Fuzz(func(t *testing.T, input []byte, pointer string) {
		p, err := policy.Arguments(ask, policy.Limit{Pointer: pointer, Max: new(100.0)})
		if err != nil {
			return
		}
		o := policy.Evaluate(t.Context(), []policy.Policy{p}, policy.Request{Phase: policy.PhaseInvocation, Input: input}, time.Minute)
		if o.Failed {
			t.Fatalf("failed: %+v", o)
		}
		var plain struct {
			Amount *float64
		}
		if pointer == "/amount" && o.Stance == policy.StanceAllow {
			var exact map[string]json.RawMessage
			if json.Unmarshal(input, &exact) != nil || json.Unmarshal(exact["amount"], &plain.Amount) != nil || plain.Amount == nil || *plain.Amount > 100 {
				t.Fatalf("allowed %q", input)
			}
		}
	})
}
