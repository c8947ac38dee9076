package policy_test

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"moothall/runtime/policy"
)

func must(t *testing.T) func(policy.Policy, error) policy.Policy {
	t.Helper()
	return func(p policy.Policy, err error) policy.Policy {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
}

func allows(context.Context, policy.Request) (policy.Decision, error) {
	return policy.Decision{Stance: policy.StanceAllow}, nil
}

func TestR103ConstructorsRefuse(t *testing.T) {
	inv := []policy.Phase{policy.PhaseInvocation}
	for name, make := range map[string]func() (any, error){
		"R103 an empty name":                      func() (any, error) { return policy.New("", inv, allows) },
		"R103 a blank name":                       func() (any, error) { return policy.New("  ", inv, allows) },
		"no phase":                                func() (any, error) { return policy.New("p", nil, allows) },
		"an unknown phase":                        func() (any, error) { return policy.New("p", []policy.Phase{"later"}, allows) },
		"no function":                             func() (any, error) { return policy.New("p", inv, nil) },
		"R103 an approval without a reason":       func() (any, error) { return policy.RequireApproval("", "", 0, 0) },
		"R103 an approval with a blank reason":    func() (any, error) { return policy.RequireApproval(" ", "", 0, 0) },
		"RZ13 an approval with a negative window": func() (any, error) { return policy.RequireApproval("because", "", -1, 0) },
		"RZ13 an approval with a negative quorum": func() (any, error) { return policy.RequireApproval("because", "", 0, -1) },
		"a composite of nothing":                  func() (any, error) { return policy.Compose("c") },
		"a composite of nil":                      func() (any, error) { return policy.Compose("c", nil) },
		"a composite of a nameless one":           func() (any, error) { return policy.Compose("c", says("", policy.StanceAllow)) },
		"a composite of an unknown phase": func() (any, error) {
			return policy.Compose("c", rule{"p", []policy.Phase{"later"}, allows})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := make(); err == nil {
				t.Errorf("accepted: %v", got)
			}
		})
	}
}

func TestR023Composites(t *testing.T) {
	a := must(t)(policy.New("a", []policy.Phase{policy.PhaseInvocation}, allows))
	b := must(t)(policy.New("b", []policy.Phase{policy.PhaseExecution, policy.PhaseInvocation}, allows))
	c := must(t)(policy.New("c", []policy.Phase{policy.PhaseDiscovery}, allows))
	inner := must(t)(policy.Compose("", a, b))
	outer := must(t)(policy.Compose("house", inner, c))
	if inner.Name() != "composed(a,b)" || outer.Name() != "house" {
		t.Errorf("names %q, %q", inner.Name(), outer.Name())
	}
	if got := outer.Phases(); !slices.Equal(got, []policy.Phase{policy.PhaseInvocation, policy.PhaseExecution, policy.PhaseDiscovery}) {
		t.Errorf("phases %v", got)
	}
	var names []string
	for _, p := range policy.Flatten([]policy.Policy{outer}) {
		names = append(names, p.Name())
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("flattened to %v", names)
	}
	o := policy.Evaluate(t.Context(), []policy.Policy{outer}, policy.Request{Phase: policy.PhaseExecution}, time.Second)
	if want := []policy.Record{{Policy: "b", Stance: policy.StanceAllow}}; !reflect.DeepEqual(o.Records, want) {
		t.Errorf("records %v; want %v", o.Records, want)
	}
	outer.Phases()[0] = "x"
	outer.(policy.Composite).Members()[0] = nil
	if outer.Phases()[0] != policy.PhaseInvocation || outer.(policy.Composite).Members()[0] == nil {
		t.Error("a composite can be changed from outside")
	}
}

// A composite answers the same asked by itself as its members do in a list.
func TestCompositesAlone(t *testing.T) {
	a, d, h, r := policy.StanceAllow, policy.StanceDeny, policy.StanceHide, policy.StanceRequireApproval
	req := policy.Request{Phase: policy.PhaseInvocation, Input: json.RawMessage(`{}`)}
	for _, one := range []policy.Stance{a, d, h, r} {
		for _, two := range []policy.Stance{a, d, h, r} {
			members := []policy.Policy{says("first", one), says("second", two)}
			c := must(t)(policy.Compose("", members...))
			got, err := c.Evaluate(t.Context(), req)
			if want := evaluate(t, members...); err != nil || got.Stance != want.Stance || got.Message != want.Message {
				t.Errorf("%s and %s: %+v, %v; want %+v", one, two, got, err, want)
			}
			if inList := evaluate(t, c); inList.Stance != got.Stance || len(inList.Records) != 2 {
				t.Errorf("%s and %s in a list: %+v", one, two, inList)
			}
		}
	}
	demand := func(name, reason, kind string, window time.Duration, quorum int) policy.Policy {
		return rule{name, nil, func(context.Context, policy.Request) (policy.Decision, error) {
			d, err := policy.RequireApproval(reason, kind, window, quorum)
			d.Groups = []string{"council", reason}
			return d, err
		}}
	}
	c := must(t)(policy.Compose("", demand("a", "late", "", time.Hour, 1), demand("b", "dear", "manager", time.Minute, 2), demand("c", "odd", "manager", 0, 0)))
	got, err := c.Evaluate(t.Context(), req)
	if want := (policy.Decision{Stance: r, Reason: "late; dear; odd", Type: "manager", ExpiresIn: time.Minute, Quorum: 2, Groups: []string{"council", "late", "dear", "odd"}}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("the union is %+v, %v", got, err)
	}
	for name, bad := range map[string]policy.Policy{
		"two kinds of sign-off": must(t)(policy.Compose("", demand("a", "late", "manager", 0, 0), demand("b", "dear", "treasurer", 0, 0))),
		"a member that fails":   must(t)(policy.Compose("", says("a", policy.StanceAllow), demand("b", "", "", 0, 0))),
		"no answer":             must(t)(policy.Compose("", says("a", ""))),
	} {
		if got, err := bad.Evaluate(t.Context(), req); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	panics := must(t)(policy.Compose("", says("a", policy.StanceAllow), rule{"p", nil, func(context.Context, policy.Request) (policy.Decision, error) { panic("x") }}))
	if o := evaluate(t, panics); !o.Failed || o.Stance != d {
		t.Errorf("a member that panics: %+v", o)
	}
}

func TestMetadataIsRecorded(t *testing.T) {
	kept := map[string]string{"rule": "7"}
	p := rule{"p", nil, func(context.Context, policy.Request) (policy.Decision, error) {
		return policy.Decision{Stance: policy.StanceDeny, Code: "late", Message: "Not now.", Metadata: kept}, nil
	}}
	o := evaluate(t, p)
	kept["rule"] = "8"
	if want := []policy.Record{{Policy: "p", Stance: policy.StanceDeny, Reason: "Not now.", Code: "late", Metadata: map[string]string{"rule": "7"}}}; !reflect.DeepEqual(o.Records, want) || o.Code != "late" {
		t.Errorf("%+v", o)
	}
}
