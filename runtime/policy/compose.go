package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Func is what a policy does: see [Policy].
type Func func(ctx context.Context, r Request) (Decision, error)

// New makes a policy of a function. It reports an empty name, no phase, an
// unknown phase and a missing function, all at once.
func New(name string, phases []Phase, f Func) (Policy, error) {
	err := checkHead(name, phases)
	if f == nil {
		err = errors.Join(err, errors.New("has no function"))
	}
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", name, err)
	}
	return plain{name, slices.Clone(phases), f}, nil
}

func checkHead(name string, phases []Phase) error {
	var faults []error
	if strings.TrimSpace(name) == "" {
		faults = append(faults, errors.New("has no name"))
	}
	if len(phases) == 0 {
		faults = append(faults, errors.New("names no phase, so it would never be asked"))
	}
	for _, ph := range phases {
		if !ph.Valid() {
			faults = append(faults, fmt.Errorf("names an unknown phase %q", ph))
		}
	}
	return errors.Join(faults...)
}

type plain struct {
	name   string
	phases []Phase
	f      Func
}

func (p plain) Name() string    { return p.name }
func (p plain) Phases() []Phase { return slices.Clone(p.phases) }
func (p plain) Evaluate(ctx context.Context, r Request) (Decision, error) {
	return p.f(ctx, r)
}

// RequireApproval is the decision that a human must say yes. It wants a reason;
// kind, expiry (zero: the gate's) and quorum (zero: one) may be left out, and
// must not be negative.
func RequireApproval(reason, kind string, expiresIn time.Duration, quorum int) (Decision, error) {
	d := Decision{Stance: StanceRequireApproval, Reason: reason, Type: kind, ExpiresIn: expiresIn, Quorum: quorum}
	if err := d.Check(); err != nil {
		return Decision{}, err
	}
	return d, nil
}

// Deny is the decision that the call is refused with message.
func Deny(message string) Decision { return Decision{Stance: StanceDeny, Message: message} }

// Composite is a policy made of others. [Evaluate] asks the members instead of
// it, so that each is on record; whoever lists policies does the same with
// [Flatten].
type Composite interface {
	Policy
	Members() []Policy
}

// Compose makes one policy of several. An empty name becomes "composed(a,b)".
// It has a say in every phase that a member has a say in; a member is asked in
// its own phases only, in the order given.
func Compose(name string, members ...Policy) (Policy, error) {
	if len(members) == 0 {
		return nil, errors.New("compose: no members")
	}
	names := make([]string, len(members))
	c := composed{members: slices.Clone(members)}
	for i, m := range members {
		if m == nil || strings.TrimSpace(m.Name()) == "" {
			return nil, fmt.Errorf("compose: member %d has no name", i+1)
		}
		names[i] = m.Name()
		for _, ph := range phasesOf(m) {
			if !slices.Contains(c.phases, ph) {
				c.phases = append(c.phases, ph)
			}
		}
	}
	if c.name = name; name == "" {
		c.name = "composed(" + strings.Join(names, ",") + ")"
	}
	if err := checkHead(c.name, c.phases); err != nil {
		return nil, fmt.Errorf("policy %q: %w", c.name, err)
	}
	return c, nil
}

// Flatten puts the members of composites in their place, at any depth.
func Flatten(policies []Policy) []Policy {
	out := make([]Policy, 0, len(policies))
	for _, p := range policies {
		if c, ok := p.(Composite); ok {
			out = append(out, Flatten(c.Members())...)
			continue
		}
		out = append(out, p)
	}
	return out
}

type composed struct {
	name    string
	phases  []Phase
	members []Policy
}

func (c composed) Name() string      { return c.name }
func (c composed) Phases() []Phase   { return slices.Clone(c.phases) }
func (c composed) Members() []Policy { return slices.Clone(c.members) }

// Evaluate asks the members and makes one decision of theirs. Demands become
// one, with all reasons and groups, the shortest window and the highest quorum; two
// different kinds of sign-off do not fit in one decision and are an error.
func (c composed) Evaluate(ctx context.Context, r Request) (Decision, error) {
	all := Outcome{Stance: StanceAllow}
	for _, m := range c.members {
		if !speaks(m, r.Phase) {
			continue
		}
		d, err := m.Evaluate(ctx, own(r))
		if err == nil {
			err = d.Check()
		}
		if err != nil {
			return Decision{}, fmt.Errorf("policy %s: member %s: %w", c.name, m.Name(), err)
		}
		all.weigh(m, d)
	}
	if all.Stance == StanceRequireApproval {
		return c.union(all.Demands)
	}
	return Decision{Stance: all.Stance, Message: all.Message, Code: all.Code}, nil
}

func (c composed) union(demands []Decision) (Decision, error) {
	one := Decision{Stance: StanceRequireApproval}
	reasons := make([]string, 0, len(demands))
	for _, d := range demands {
		reasons = append(reasons, d.Reason)
		if one.Type == "" {
			one.Type = d.Type
		}
		if d.Type != "" && d.Type != one.Type {
			return Decision{}, fmt.Errorf("policy %s asks for two kinds of sign-off, %q and %q", c.name, one.Type, d.Type)
		}
		if one.ExpiresIn == 0 || (d.ExpiresIn > 0 && d.ExpiresIn < one.ExpiresIn) {
			one.ExpiresIn = d.ExpiresIn
		}
		one.Quorum = max(one.Quorum, d.Quorum)
		for _, g := range d.Groups {
			if !slices.Contains(one.Groups, g) {
				one.Groups = append(one.Groups, g)
			}
		}
	}
	one.Reason = strings.Join(reasons, "; ")
	return one, nil
}

// phasesOf gives the phases p has a say in.
func phasesOf(p Policy) []Phase {
	if phases := p.Phases(); len(phases) > 0 {
		return phases
	}
	return []Phase{PhaseInvocation}
}
