package policy_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"moothall/runtime/policy"
)

// In the caller's own goroutine or in one of its own, a policy decides the same.
func TestEvaluateHereDecidesTheSame(t *testing.T) {
	bad := func(name string, f func() (policy.Decision, error)) policy.Policy {
		return rule{name, nil, func(context.Context, policy.Request) (policy.Decision, error) { return f() }}
	}
	all := []policy.Policy{
		says("allow", policy.StanceAllow), says("deny", policy.StanceDeny), says("hide", policy.StanceHide), says("ask", policy.StanceRequireApproval),
		says("nothing", ""), says("nonsense", "perhaps"),
		bad("an error", func() (policy.Decision, error) { return policy.Decision{Stance: policy.StanceAllow}, errors.New("x") }),
		bad("a panic", func() (policy.Decision, error) { panic("x") }),
		must(t)(policy.Compose("", says("deny", policy.StanceDeny), says("allow", policy.StanceAllow))),
	}
	r := policy.Request{Phase: policy.PhaseInvocation}
	for _, a := range all {
		for _, b := range all {
			ps := []policy.Policy{a, b}
			want, got := policy.Evaluate(t.Context(), ps, r, time.Minute), policy.EvaluateHere(t.Context(), ps, r)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %s: %+v; want %+v", a.Name(), b.Name(), got, want)
			}
		}
	}
	for _, p := range all[4:8] {
		if o := policy.EvaluateHere(t.Context(), []policy.Policy{p}, r); !o.Failed || o.Stance != policy.StanceDeny {
			t.Errorf("%s: %+v; want a denial", p.Name(), o)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if o := policy.EvaluateHere(ctx, all[:1], r); !o.Failed || o.Stance != policy.StanceDeny {
		t.Errorf("when time is up: %+v", o)
	}
}
