// Package policy is what may take a call away or put it before a human.
//
// A policy answers allow, deny, hide or require-approval. Every policy that has
// a say is asked, so that the record lists every stance; error beats deny beats
// hide beats require-approval beats allow. A policy that fails, panics, takes
// too long or answers nonsense denies. Policies cannot change the input.
//
// [New] makes a policy of a function, [Compose] one of several. The built-in
// ones each do one thing, and give the answer of their [Rule] when it holds:
// [SideEffectFrom] and [RiskFrom] look at what a tool is, [OnlyActors] and
// [NotActors] at who asks, [OnlySurfaces] and [NotSurfaces] at how,
// [Arguments] at what is asked for, [OnlyDuring] and [NotDuring] at when. What
// they cannot tell they do not allow. All are safe for concurrent use.
package policy

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
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
	Code    string // of a deny: a short word for programs, never shown
	// Of a require-approval: why, what kind of sign-off, for how long, how many.
	Reason    string
	Type      string
	ExpiresIn time.Duration
	Quorum    int
	// Groups are named groups of each of which somebody must say yes.
	Groups []string
	// Metadata is recorded with the stance and shown to nobody else. It must not
	// hold arguments or secrets.
	Metadata map[string]string
}

// Check reports what makes d no answer: no known stance, or a demand for an
// approval without a reason or with a negative bound.
func (d Decision) Check() error {
	switch d.Stance {
	case StanceAllow, StanceDeny, StanceHide:
		return nil
	case StanceRequireApproval:
		if strings.TrimSpace(d.Reason) == "" {
			return errors.New("asks for an approval without a reason")
		}
		if d.ExpiresIn < 0 || d.Quorum < 0 {
			return errors.New("asks for an approval with a negative expiry or quorum")
		}
		return nil
	case stanceError:
	}
	return errors.New("gave no decision")
}

// record is what the audit keeps of d.
func (d Decision) record(p Policy) Record {
	r := Record{Policy: p.Name(), Stance: d.Stance, Metadata: maps.Clone(d.Metadata)}
	switch d.Stance {
	case StanceDeny:
		r.Reason, r.Code = d.Message, d.Code
	case StanceRequireApproval:
		r.Reason = d.Reason
	case StanceAllow, StanceHide, stanceError:
	}
	return r
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
	// Reason is why: of a demand its reason, of a deny its message.
	Reason   string            `json:"reason,omitempty"`
	Code     string            `json:"code,omitempty"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Outcome is what all policies of a phase amount to.
type Outcome struct {
	Stance  Stance // allow, deny, hide or require-approval
	Failed  bool   // at least one policy failed: deny, and say nothing
	Message string // of the first deny
	Policy  string // that denied first
	Code    string // of the first deny
	Demands []Decision
	Records []Record
}

// Evaluate asks every policy that has a say in r.Phase, in order, under one
// shared deadline. Of a composite every member is asked and recorded.
func Evaluate(ctx context.Context, policies []Policy, r Request, budget time.Duration) Outcome {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	return EvaluateUntil(ctx, policies, r)
}

// EvaluateUntil is [Evaluate] for a caller with a deadline of its own: it returns
// when ctx ends, and who has not answered by then has failed. The caller ends ctx
// when it is back, so that nobody else is asked.
func EvaluateUntil(ctx context.Context, policies []Policy, r Request) Outcome {
	b := &batch{r: own(r), over: make(chan struct{})}
	b.policies = speakers(b.few[:0], policies, r.Phase)
	b.answers = make([]answer, len(b.policies))
	if len(b.policies) == 0 {
		return Outcome{Stance: StanceAllow}
	}
	go b.work(ctx)
	runtime.Gosched() // most policies have answered when we are back, and no timer is set
	select {
	case <-b.over:
	default:
		select {
		case <-b.over:
		case <-ctx.Done():
		}
	}
	return b.outcome()
}

// batch is policies that are asked in one goroutine of their own, so that one
// that ignores ctx does not hold the call; late answers go nowhere.
type batch struct {
	policies []Policy
	r        Request
	answers  []answer     // in the order of policies
	answered atomic.Int64 // whoever waits reads the answers up to here, the goroutine writes those from here on
	over     chan struct{}
	few      [4]Policy
}

type answer struct {
	d   Decision
	err error
}

// work asks one policy after the other. One that ends the goroutine has failed,
// and so has who would have been asked after it.
func (b *batch) work(ctx context.Context) {
	defer close(b.over)
	for i, p := range b.policies {
		here(ctx, p, &b.r, &b.answers[i])
		b.answered.Add(1)
	}
}

func (b *batch) outcome() Outcome {
	out := Outcome{Stance: StanceAllow}
	answered := int(b.answered.Load())
	for i, p := range b.policies {
		a := answer{err: errUnanswered}
		if i < answered {
			a = b.answers[i]
		}
		if err := a.d.Check(); err != nil {
			a.err = err
		}
		out.add(p, a.d, a.err)
	}
	return out.sum()
}

var errUnanswered = errors.New("gave no answer")

// add puts the answer of one policy on record and weighs it.
func (o *Outcome) add(p Policy, d Decision, err error) {
	if err != nil {
		o.Failed = true
		o.Records = append(o.Records, Record{Policy: p.Name(), Stance: stanceError})
		return
	}
	o.Records = append(o.Records, d.record(p))
	o.weigh(p, d)
}

// sum is what the answers amount to.
func (o *Outcome) sum() Outcome {
	out := *o
	if out.Failed {
		out.Stance = StanceDeny
	}
	return out
}

// speakers appends who has a say in ph, of composites the members.
func speakers(list, policies []Policy, ph Phase) []Policy {
	for _, p := range policies {
		if !speaks(p, ph) {
			continue
		}
		if c, ok := p.(Composite); ok {
			list = speakers(list, c.Members(), ph)
			continue
		}
		list = append(list, p)
	}
	return list
}

// weigh adds one answer: deny beats hide beats require-approval beats allow.
func (o *Outcome) weigh(p Policy, d Decision) {
	switch d.Stance {
	case StanceDeny:
		if o.Stance != StanceDeny {
			o.Stance, o.Message, o.Policy, o.Code = StanceDeny, d.Message, p.Name(), d.Code
		}
	case StanceHide:
		if o.Stance != StanceDeny {
			o.Stance = StanceHide
		}
	case StanceRequireApproval:
		o.Demands = append(o.Demands, d)
		if o.Stance == StanceAllow {
			o.Stance = StanceRequireApproval
		}
	case StanceAllow, stanceError:
	}
}

// own makes what a policy is shown its own: it cannot change what is decided on.
func own(r Request) Request {
	r.part()
	return r
}

// part ends what r shares with whoever made it.
func (r *Request) part() {
	r.Input = append(json.RawMessage(nil), r.Input...)
	r.Meta.Expose, r.Meta.Tags = slices.Clone(r.Meta.Expose), slices.Clone(r.Meta.Tags)
	r.Meta.Approval.Groups = slices.Clone(r.Meta.Approval.Groups)
	r.Actor.Attributes = maps.Clone(r.Actor.Attributes)
}

// Speaks reports whether any of policies has a say in ph.
func Speaks(policies []Policy, ph Phase) bool {
	return slices.ContainsFunc(policies, func(p Policy) bool { return speaks(p, ph) })
}

func speaks(p Policy, ph Phase) bool {
	phases := p.Phases()
	return slices.Contains(phases, ph) || (len(phases) == 0 && ph == PhaseInvocation)
}
