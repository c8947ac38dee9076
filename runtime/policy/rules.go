package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"moothall/runtime/capability"
)

// Rule is what every built-in policy has: a name, when it is asked (none means
// at invocation), and the answer it gives when its condition holds. Otherwise it
// allows. The answer is a deny, a hide or a demand for an approval.
type Rule struct {
	Name   string
	Phases []Phase
	Answer Decision
}

// build makes the policy; holds says whether the answer is given.
func (r Rule) build(fault error, holds func(Request) bool) (Policy, error) {
	return r.decide(fault, func(q Request) Decision {
		if holds(q) {
			return r.Answer
		}
		return Decision{Stance: StanceAllow}
	})
}

func (r Rule) decide(fault error, f func(Request) Decision) (Policy, error) {
	phases := r.Phases
	if len(phases) == 0 {
		phases = []Phase{PhaseInvocation}
	}
	faults := []error{checkHead(r.Name, phases), r.Answer.Check(), fault}
	if r.Answer.Stance == StanceAllow {
		faults = append(faults, errors.New("answers allow, which takes nothing away"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("policy %q: %w", r.Name, err)
	}
	return New(r.Name, phases, func(_ context.Context, q Request) (Decision, error) { return f(q), nil })
}

// SideEffectFrom gives the rule's answer for tools whose side effect is level or
// worse, in the order none, read, write, destructive, external. A tool that says
// nothing valid of itself counts as the worst.
func SideEffectFrom(r Rule, level capability.SideEffect) (Policy, error) {
	order := []capability.SideEffect{
		capability.SideEffectNone, capability.SideEffectRead, capability.SideEffectWrite,
		capability.SideEffectDestructive, capability.SideEffectExternal,
	}
	from := slices.Index(order, level)
	return r.build(unknownLevel(from, level), func(q Request) bool { return atLeast(order, q.Meta.SideEffect, from) })
}

// RiskFrom gives the rule's answer for tools whose risk is level or higher. A
// tool that says nothing valid of itself counts as the highest.
func RiskFrom(r Rule, level capability.Risk) (Policy, error) {
	order := []capability.Risk{capability.RiskLow, capability.RiskMedium, capability.RiskHigh, capability.RiskCritical}
	from := slices.Index(order, level)
	return r.build(unknownLevel(from, level), func(q Request) bool { return atLeast(order, q.Meta.Risk, from) })
}

func unknownLevel[T ~string](at int, level T) error {
	if at < 0 {
		return fmt.Errorf("there is no level %q", level)
	}
	return nil
}

func atLeast[T comparable](order []T, v T, from int) bool {
	at := slices.Index(order, v)
	return at < 0 || at >= from
}

// OnlySurfaces gives the rule's answer to calls from any surface but these.
func OnlySurfaces(r Rule, surfaces ...capability.Surface) (Policy, error) {
	listed := slices.Clone(surfaces)
	return r.build(checkSurfaces(listed), func(q Request) bool { return !slices.Contains(listed, q.Surface) })
}

// NotSurfaces gives the rule's answer to calls from these surfaces, and from
// what is no surface.
func NotSurfaces(r Rule, surfaces ...capability.Surface) (Policy, error) {
	listed := slices.Clone(surfaces)
	return r.build(checkSurfaces(listed), func(q Request) bool {
		return !q.Surface.Valid() || slices.Contains(listed, q.Surface)
	})
}

func checkSurfaces(surfaces []capability.Surface) error {
	if len(surfaces) == 0 {
		return errors.New("names no surface")
	}
	for _, s := range surfaces {
		if !s.Valid() {
			return fmt.Errorf("there is no surface %q", s)
		}
	}
	return nil
}

// Actors is a set of parties: whoever one of the lists names.
type Actors struct {
	IDs     []string               // exact, as in @alice:example.org
	Servers []string               // of Matrix IDs, with the port if it has one
	Kinds   []capability.ActorKind // user, service, automation, anonymous
}

func (s Actors) check() error {
	if len(s.IDs)+len(s.Servers)+len(s.Kinds) == 0 {
		return errors.New("names nobody")
	}
	for _, v := range slices.Concat(s.IDs, s.Servers) {
		if strings.TrimSpace(v) == "" || strings.TrimSpace(v) != v {
			return fmt.Errorf("%q is no id or server", v)
		}
	}
	for _, k := range s.Kinds {
		if !(capability.Actor{ID: "x", Kind: k}).Valid() {
			return fmt.Errorf("there is no kind of actor %q", k)
		}
	}
	return nil
}

func (s Actors) clone() Actors {
	return Actors{slices.Clone(s.IDs), slices.Clone(s.Servers), slices.Clone(s.Kinds)}
}

// has reports whether a is in the set; sameServer compares server names.
func (s Actors) has(a capability.Actor, sameServer func(string, string) bool) bool {
	if slices.Contains(s.IDs, a.ID) || slices.Contains(s.Kinds, a.Kind) {
		return true
	}
	server, ok := serverOf(a.ID)
	return ok && slices.ContainsFunc(s.Servers, func(n string) bool { return sameServer(n, server) })
}

// serverOf gives what follows the first colon of a Matrix ID, which is where its
// server begins: @a:b.example is of b.example whatever else it contains.
func serverOf(id string) (string, bool) {
	if !strings.HasPrefix(id, "@") {
		return "", false
	}
	_, server, ok := strings.Cut(id, ":")
	return server, ok && server != ""
}

// OnlyActors gives the rule's answer to everybody who is not in the set.
func OnlyActors(r Rule, set Actors) (Policy, error) {
	set = set.clone()
	return r.build(set.check(), func(q Request) bool {
		return !q.Actor.Valid() || !set.has(q.Actor, func(a, b string) bool { return a == b })
	})
}

// NotActors gives the rule's answer to everybody in the set, and to who is no
// valid actor. Server names are compared without regard to case here, so that
// writing one otherwise is no way around it.
func NotActors(r Rule, set Actors) (Policy, error) {
	set = set.clone()
	return r.build(set.check(), func(q Request) bool {
		return !q.Actor.Valid() || set.has(q.Actor, strings.EqualFold)
	})
}
