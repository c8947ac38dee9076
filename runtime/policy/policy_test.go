package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

type rule struct {
	name   string
	phases []policy.Phase
	f      func(ctx context.Context, r policy.Request) (policy.Decision, error)
}

func (r rule) Name() string           { return r.name }
func (r rule) Phases() []policy.Phase { return r.phases }
func (r rule) Evaluate(ctx context.Context, q policy.Request) (policy.Decision, error) {
	return r.f(ctx, q)
}

func says(name string, s policy.Stance) policy.Policy {
	return rule{name, nil, func(context.Context, policy.Request) (policy.Decision, error) {
		return policy.Decision{Stance: s, Reason: "because of " + name, Message: "no, says " + name}, nil
	}}
}

// stances are the records without what else is in them.
func stances(o policy.Outcome) []policy.Record {
	out := make([]policy.Record, len(o.Records))
	for i, r := range o.Records {
		out[i] = policy.Record{Policy: r.Policy, Stance: r.Stance}
	}
	return out
}

func evaluate(t *testing.T, ps ...policy.Policy) policy.Outcome {
	t.Helper()
	return policy.Evaluate(t.Context(), ps, policy.Request{Phase: policy.PhaseInvocation, Input: json.RawMessage(`{}`)}, time.Second)
}

// Without the gate: both orders give the same, and both are asked.
func TestPrecedence(t *testing.T) {
	a, d, h, r := policy.StanceAllow, policy.StanceDeny, policy.StanceHide, policy.StanceRequireApproval
	for i, tt := range []struct{ one, two, want policy.Stance }{
		{a, a, a}, {a, d, d}, {a, h, h}, {a, r, r}, {d, d, d}, {d, h, d}, {d, r, d}, {h, h, h}, {h, r, h}, {r, r, r},
	} {
		t.Run(fmt.Sprintf("R%03d R089 %s and %s", 79+i, tt.one, tt.two), func(t *testing.T) {
			for _, pair := range [][2]policy.Stance{{tt.one, tt.two}, {tt.two, tt.one}} {
				o := evaluate(t, says("first", pair[0]), says("second", pair[1]))
				if o.Stance != tt.want || o.Failed {
					t.Errorf("%s and %s make %s (failed %t); want %s", pair[0], pair[1], o.Stance, o.Failed, tt.want)
				}
				if want := []policy.Record{{Policy: "first", Stance: pair[0]}, {Policy: "second", Stance: pair[1]}}; !reflect.DeepEqual(stances(o), want) {
					t.Errorf("records %v; want %v", o.Records, want)
				}
			}
		})
	}
}

func TestR091TheFirstDenialSpeaks(t *testing.T) {
	o := evaluate(t, says("a", policy.StanceHide), says("b", policy.StanceDeny), says("c", policy.StanceDeny))
	if o.Message != "no, says b" {
		t.Errorf("message %q", o.Message)
	}
	if o.Policy != "b" || o.Records[1].Reason != "no, says b" {
		t.Errorf("the outcome names %q, the record gives %q", o.Policy, o.Records[1].Reason)
	}
}

func TestNoPolicyAllows(t *testing.T) {
	if o := evaluate(t); o.Stance != policy.StanceAllow || o.Failed || len(o.Records) != 0 {
		t.Errorf("%+v", o)
	}
}

func TestR095ErrorBeatsEverything(t *testing.T) {
	bad := rule{"bad", nil, func(context.Context, policy.Request) (policy.Decision, error) {
		return policy.Decision{Stance: policy.StanceAllow}, errors.New("x")
	}}
	for _, s := range []policy.Stance{policy.StanceAllow, policy.StanceDeny, policy.StanceHide, policy.StanceRequireApproval} {
		for _, ps := range [][]policy.Policy{{bad, says("p", s)}, {says("p", s), bad}} {
			if o := evaluate(t, ps...); !o.Failed || o.Stance != policy.StanceDeny || len(o.Records) != 2 {
				t.Errorf("%s: %+v", s, o)
			}
		}
	}
}

// One deadline for the batch: when it is used up, who is left is not asked.
func TestR096TheBudgetIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		slow := rule{"slow", nil, func(context.Context, policy.Request) (policy.Decision, error) {
			asked.Add(1)
			time.Sleep(600 * time.Millisecond)
			return policy.Decision{Stance: policy.StanceAllow}, nil
		}}
		begun := time.Now()
		o := evaluate(t, slow, slow, slow, slow)
		if took := time.Since(begun); took != time.Second {
			t.Errorf("took %s", took)
		}
		time.Sleep(time.Minute) // the slow ones end
		var got []policy.Stance
		for _, r := range o.Records {
			got = append(got, r.Stance)
		}
		if !o.Failed || !slices.Equal(got, []policy.Stance{"allow", "error", "error", "error"}) || asked.Load() != 2 {
			t.Errorf("%v after %d were asked", got, asked.Load())
		}
	})
}

func TestRZ7PoliciesGetCopies(t *testing.T) {
	vandal := rule{"vandal", nil, func(_ context.Context, r policy.Request) (policy.Decision, error) {
		clear(r.Input)
		r.Meta.Tags[0], r.Meta.Expose[0], r.Actor.Attributes["power"] = "x", "moon", "100"
		return policy.Decision{Stance: policy.StanceAllow}, nil
	}}
	r := policy.Request{
		Phase: policy.PhaseInvocation, Input: json.RawMessage(`{"a":1}`),
		Meta:  capability.Meta{Tags: []string{"hall"}, Expose: []capability.Surface{capability.SurfaceHTTP}},
		Actor: capability.Actor{Attributes: map[string]string{"power": "0"}},
	}
	policy.Evaluate(t.Context(), []policy.Policy{vandal}, r, time.Second)
	if string(r.Input) != `{"a":1}` || r.Meta.Tags[0] != "hall" || r.Meta.Expose[0] != capability.SurfaceHTTP || r.Actor.Attributes["power"] != "0" {
		t.Errorf("changed: %+v", r)
	}
}
