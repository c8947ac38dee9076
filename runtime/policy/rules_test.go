package policy_test

import (
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

var (
	no  = policy.Rule{Name: "p", Answer: policy.Deny("No.")}
	ask = policy.Rule{Name: "p", Answer: policy.Decision{Stance: policy.StanceRequireApproval, Reason: "it matters"}}
)

func stance(t *testing.T, p policy.Policy, r policy.Request) policy.Stance {
	t.Helper()
	r.Phase = policy.PhaseInvocation
	o := policy.Evaluate(t.Context(), []policy.Policy{p}, r, time.Second)
	if o.Failed {
		t.Fatalf("failed: %+v", o)
	}
	return o.Stance
}

func TestThresholds(t *testing.T) {
	write := must(t)(policy.SideEffectFrom(ask, capability.SideEffectWrite))
	for effect, want := range map[capability.SideEffect]policy.Stance{
		capability.SideEffectNone: policy.StanceAllow, capability.SideEffectRead: policy.StanceAllow,
		capability.SideEffectWrite: policy.StanceRequireApproval, capability.SideEffectDestructive: policy.StanceRequireApproval,
		capability.SideEffectExternal: policy.StanceRequireApproval, "": policy.StanceRequireApproval, "tiny": policy.StanceRequireApproval,
	} {
		if got := stance(t, write, policy.Request{Meta: capability.Meta{SideEffect: effect}}); got != want {
			t.Errorf("side effect %q: %s; want %s", effect, got, want)
		}
	}
	high := must(t)(policy.RiskFrom(no, capability.RiskHigh))
	for risk, want := range map[capability.Risk]policy.Stance{
		capability.RiskLow: policy.StanceAllow, capability.RiskMedium: policy.StanceAllow, capability.RiskHigh: policy.StanceDeny,
		capability.RiskCritical: policy.StanceDeny, "": policy.StanceDeny, "none": policy.StanceDeny,
	} {
		if got := stance(t, high, policy.Request{Meta: capability.Meta{Risk: risk}}); got != want {
			t.Errorf("risk %q: %s; want %s", risk, got, want)
		}
	}
}

func TestActors(t *testing.T) {
	set := policy.Actors{
		IDs: []string{"@alice:example.org", "billing"}, Servers: []string{"trusted.example"},
		Kinds: []capability.ActorKind{capability.KindAutomation},
	}
	only, not := must(t)(policy.OnlyActors(no, set)), must(t)(policy.NotActors(no, set))
	user, service := capability.KindUser, capability.KindService
	for _, tt := range []struct {
		name      string
		actor     capability.Actor
		only, not policy.Stance
	}{
		{"by id", capability.Actor{ID: "@alice:example.org", Kind: user}, "allow", "deny"},
		{"an id that is no Matrix ID", capability.Actor{ID: "billing", Kind: service}, "allow", "deny"},
		{"by server", capability.Actor{ID: "@carol:trusted.example", Kind: user}, "allow", "deny"},
		{"by kind", capability.Actor{ID: "nightly", Kind: capability.KindAutomation}, "allow", "deny"},
		{"none of them", capability.Actor{ID: "@bob:example.org", Kind: user}, "deny", "allow"},
		{"case counts in an id", capability.Actor{ID: "@Alice:example.org", Kind: user}, "deny", "allow"},
		{"C021 the same name elsewhere", capability.Actor{ID: "@alice:evil.example", Kind: user}, "deny", "allow"},
		{"a server that only ends alike", capability.Actor{ID: "@carol:untrusted.example", Kind: user}, "deny", "allow"},
		{"a server below it", capability.Actor{ID: "@carol:sub.trusted.example", Kind: user}, "deny", "allow"},
		{"the server in the name", capability.Actor{ID: "@carol:evil.example:trusted.example", Kind: user}, "deny", "allow"},
		{"another port", capability.Actor{ID: "@carol:trusted.example:8448", Kind: user}, "deny", "allow"},
		{"no Matrix ID", capability.Actor{ID: "carol:trusted.example", Kind: service}, "deny", "allow"},
		{"a server in capitals", capability.Actor{ID: "@carol:TRUSTED.example", Kind: user}, "deny", "deny"},
		{"a display name", capability.Actor{ID: "@bob:example.org", Kind: user, Name: "@alice:example.org"}, "deny", "allow"},
		{"nobody", capability.Actor{}, "deny", "deny"},
		{"of no kind", capability.Actor{ID: "@alice:example.org"}, "deny", "deny"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := stance(t, only, policy.Request{Actor: tt.actor}); got != tt.only {
				t.Errorf("only: %s; want %s", got, tt.only)
			}
			if got := stance(t, not, policy.Request{Actor: tt.actor}); got != tt.not {
				t.Errorf("not: %s; want %s", got, tt.not)
			}
		})
	}
	set.IDs[0] = "@bob:example.org"
	if stance(t, only, policy.Request{Actor: capability.Actor{ID: "@bob:example.org", Kind: user}}) != policy.StanceDeny {
		t.Error("the set can be changed from outside")
	}
}

func TestSurfaces(t *testing.T) {
	only := must(t)(policy.OnlySurfaces(no, capability.SurfaceCommand, capability.SurfaceHTTP))
	not := must(t)(policy.NotSurfaces(no, capability.SurfaceMCP, capability.SurfaceAgent))
	for s, want := range map[capability.Surface][2]policy.Stance{
		capability.SurfaceCommand: {"allow", "allow"}, capability.SurfaceHTTP: {"allow", "allow"}, capability.SurfaceMCP: {"deny", "deny"},
		capability.SurfaceAgent: {"deny", "deny"}, capability.SurfaceDirect: {"deny", "allow"}, "": {"deny", "deny"}, "moon": {"deny", "deny"},
	} {
		if got := stance(t, only, policy.Request{Surface: s}); got != want[0] {
			t.Errorf("only, %q: %s", s, got)
		}
		if got := stance(t, not, policy.Request{Surface: s}); got != want[1] {
			t.Errorf("not, %q: %s", s, got)
		}
	}
}

func TestR103BuiltInsRefuse(t *testing.T) {
	one := 1.0
	for name, make := range map[string]func() (policy.Policy, error){
		"R103 no name": func() (policy.Policy, error) {
			return policy.RiskFrom(policy.Rule{Answer: no.Answer}, capability.RiskLow)
		},
		"an unknown phase": func() (policy.Policy, error) {
			return policy.RiskFrom(policy.Rule{Name: "p", Phases: []policy.Phase{"x"}, Answer: no.Answer}, capability.RiskLow)
		},
		"no answer": func() (policy.Policy, error) { return policy.RiskFrom(policy.Rule{Name: "p"}, capability.RiskLow) },
		"an answer that takes nothing away": func() (policy.Policy, error) {
			return policy.RiskFrom(policy.Rule{Name: "p", Answer: policy.Decision{Stance: policy.StanceAllow}}, capability.RiskLow)
		},
		"R103 an approval without a reason": func() (policy.Policy, error) {
			return policy.RiskFrom(policy.Rule{Name: "p", Answer: policy.Decision{Stance: policy.StanceRequireApproval}}, capability.RiskLow)
		},
		"an unknown risk":        func() (policy.Policy, error) { return policy.RiskFrom(no, "grave") },
		"an unknown side effect": func() (policy.Policy, error) { return policy.SideEffectFrom(no, "") },
		"no surface":             func() (policy.Policy, error) { return policy.OnlySurfaces(no) },
		"an unknown surface":     func() (policy.Policy, error) { return policy.NotSurfaces(no, "moon") },
		"nobody":                 func() (policy.Policy, error) { return policy.OnlyActors(no, policy.Actors{}) },
		"a blank id":             func() (policy.Policy, error) { return policy.NotActors(no, policy.Actors{IDs: []string{" "}}) },
		"an unknown kind": func() (policy.Policy, error) {
			return policy.NotActors(no, policy.Actors{Kinds: []capability.ActorKind{"ghost"}})
		},
		"no limits":           func() (policy.Policy, error) { return policy.Arguments(no) },
		"a limit of nothing":  func() (policy.Policy, error) { return policy.Arguments(no, policy.Limit{Pointer: "/a"}) },
		"a pointer without /": func() (policy.Policy, error) { return policy.Arguments(no, policy.Limit{Pointer: "a", Max: &one}) },
		"a pointer with a ~":  func() (policy.Policy, error) { return policy.Arguments(no, policy.Limit{Pointer: "/a~2", Max: &one}) },
		"an empty list": func() (policy.Policy, error) {
			return policy.Arguments(no, policy.Limit{Pointer: "/a", OneOf: []any{}})
		},
		"an unreadable value": func() (policy.Policy, error) {
			return policy.Arguments(no, policy.Limit{Pointer: "/a", OneOf: []any{func() {}}})
		},
		"a negative length": func() (policy.Policy, error) { return policy.Arguments(no, policy.Limit{Pointer: "/a", MaxLength: -1}) },
		"a number and a text": func() (policy.Policy, error) {
			return policy.Arguments(no, policy.Limit{Pointer: "/a", MaxLength: 1, Max: &one})
		},
		"arguments in a list": func() (policy.Policy, error) {
			return policy.Arguments(policy.Rule{Name: "p", Phases: []policy.Phase{policy.PhaseDiscovery}, Answer: no.Answer}, policy.Limit{Pointer: "/a", Max: &one})
		},
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := make(); err == nil || p != nil {
				t.Errorf("accepted: %v, %v", p, err)
			}
		})
	}
}
