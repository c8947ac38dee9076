// Package policy is what may take a call away or put it before a human.
//
// A policy answers allow, deny, hide or require-approval. Every policy that has
// a say is asked, so that the record lists every stance; error beats deny beats
// hide beats require-approval beats allow. A policy that fails, panics, takes
// too long or answers nonsense denies. Policies cannot change the input.
package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"moothall/runtime/capability"
)

// Phase is when a policy is asked.
type Phase string

// Valid reports whether p is one of the constants.
func (p Phase) Valid() bool {
	return p == PhaseDiscovery || p == PhaseInvocation || p == PhaseExecution
}

// The phases.
const (
	PhaseDiscovery  Phase = "discovery"  // when tools are listed; sees no input
	PhaseInvocation Phase = "invocation" // when a call is made, and again at resume
	PhaseExecution  Phase = "execution"  // right before the start
)

// Stance is what a policy answers. The zero value is not an answer.
type Stance string

// The stances.
const (
	StanceAllow           Stance = "allow"
	StanceDeny            Stance = "deny"
	StanceHide            Stance = "hide"
	StanceRequireApproval Stance = "require-approval"
	stanceError           Stance = "error"
)

// Decision is one policy's answer.
type Decision struct {
	Stance  Stance
	Message string // of a deny: shown to whoever asked
	// Of a require-approval: why, what kind of sign-off, for how long, how many.
	Reason    string
	Type      string
	ExpiresIn time.Duration
	Quorum    int
}

// Request is what a policy may look at.
type Request struct {
	Phase        Phase
	CapabilityID string
	Meta         capability.Meta
	Surface      capability.Surface
	Actor        capability.Actor
	Input        json.RawMessage // a copy of the canonical input; nil in discovery
	ApprovalID   string          // set when the call was approved
}

// Policy is one rule.
type Policy interface {
	Name() string
	// Phases lists when it has a say; none means at invocation.
	Phases() []Phase
	// Evaluate must return before ctx ends and must not act.
	Evaluate(ctx context.Context, r Request) (Decision, error)
}

// Record is one stance as the audit keeps it.
type Record struct {
	Policy string `json:"policy"`
	Stance Stance `json:"type"`
}

// Outcome is what all policies of a phase amount to.
type Outcome struct {
	Stance  Stance // allow, deny, hide or require-approval
	Failed  bool   // at least one policy failed: deny, and say nothing
	Message string // of the first deny
	Demands []Decision
	Records []Record
}

// Evaluate asks every policy that has a say in r.Phase, in order, under one
// shared deadline.
func Evaluate(ctx context.Context, policies []Policy, r Request, budget time.Duration) Outcome {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	out := Outcome{Stance: StanceAllow}
	for _, p := range policies {
		if !speaks(p, r.Phase) {
			continue
		}
		in := r
		// What a policy is shown is its own: it cannot change what is decided on.
		in.Input = append(json.RawMessage(nil), r.Input...)
		in.Meta.Expose, in.Meta.Tags = slices.Clone(r.Meta.Expose), slices.Clone(r.Meta.Tags)
		in.Actor.Attributes = maps.Clone(r.Actor.Attributes)
		d, err := ask(ctx, p, in)
		if err != nil {
			out.Failed = true
			out.Records = append(out.Records, Record{p.Name(), stanceError})
			continue
		}
		out.Records = append(out.Records, Record{p.Name(), d.Stance})
		switch d.Stance {
		case StanceDeny:
			if out.Stance != StanceDeny {
				out.Stance, out.Message = StanceDeny, d.Message
			}
		case StanceHide:
			if out.Stance != StanceDeny {
				out.Stance = StanceHide
			}
		case StanceRequireApproval:
			out.Demands = append(out.Demands, d)
			if out.Stance == StanceAllow {
				out.Stance = StanceRequireApproval
			}
		case StanceAllow, stanceError:
		}
	}
	if out.Failed {
		out.Stance = StanceDeny
	}
	return out
}

// Speaks reports whether any of policies has a say in ph.
func Speaks(policies []Policy, ph Phase) bool {
	return slices.ContainsFunc(policies, func(p Policy) bool { return speaks(p, ph) })
}

func speaks(p Policy, ph Phase) bool {
	phases := p.Phases()
	return slices.Contains(phases, ph) || (len(phases) == 0 && ph == PhaseInvocation)
}

// ask runs one policy in a goroutine of its own, so that one that ignores ctx
// does not hold the call; its late answer goes nowhere.
func ask(ctx context.Context, p Policy, r Request) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fmt.Errorf("policy %s was not asked: %w", p.Name(), err)
	}
	type answer struct {
		d   Decision
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				ch <- answer{err: fmt.Errorf("policy %s panicked", p.Name())}
			}
		}()
		d, err := p.Evaluate(ctx, r)
		ch <- answer{d, err}
	}()
	select {
	case <-ctx.Done():
		return Decision{}, fmt.Errorf("policy %s: %w", p.Name(), context.Cause(ctx))
	case a := <-ch:
		if a.err != nil {
			return Decision{}, a.err
		}
		switch a.d.Stance {
		case StanceAllow, StanceDeny, StanceHide:
			return a.d, nil
		case StanceRequireApproval:
			if a.d.Reason == "" || a.d.ExpiresIn < 0 || a.d.Quorum < 0 {
				return Decision{}, fmt.Errorf("policy %s asks for an approval without a reason, or with a negative bound", p.Name())
			}
			return a.d, nil
		case stanceError:
		}
		return Decision{}, fmt.Errorf("policy %s gave no decision", p.Name())
	}
}
