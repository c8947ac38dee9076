package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"moothall/runtime/capability"
)

// Approvals says how approvals are got besides being waited for.
type Approvals struct {
	// Handler, if set, is asked first, while the call waits: for surfaces where
	// somebody is there to confirm. What it decides is held to the same rules as a
	// vote (not the asker, who may, groups, quorum) and is not kept as an approval;
	// its audit rows are on record before anything runs. nil, and a yes that is not
	// enough by itself, put the question to people in the ordinary way. An error, a
	// panic and an answer that makes no sense end the call. It should return when
	// ctx ends; the call does in any case.
	Handler func(ctx context.Context, a Approval) (*Decision, error)
}

// askInline asks the handler. A nil result means yes, and the call goes on.
func (g *Gate) askInline(ctx context.Context, p *pass, a Approval) (*capability.Result, error) {
	d, err := g.answerInline(ctx, a)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("not begun: %w", ctx.Err())
	}
	switch {
	case err != nil:
		return ended(g.fail(ctx, p, noApproval().Because(err)))
	case d == nil:
		return ended(g.suspend(ctx, p, a))
	case !d.Approver.Valid():
		return ended(g.fail(ctx, p, noApproval().Because(errors.New("inline decision without an approver"))))
	case a.ExpiredAt(g.now()):
		return ended(g.fail(ctx, p, capability.Fail(capability.CodeApprovalExpired)))
	}
	d.ApprovalID = a.ID
	groups, err := g.mayInline(ctx, a, *d)
	if errors.Is(err, ErrUndecided) {
		return ended(g.suspend(ctx, p, a))
	}
	if cerr, ok := errors.AsType[*capability.Error](err); ok {
		if err := g.refuse(ctx, a, *d, cerr); !errors.Is(err, error(cerr)) {
			return nil, err
		}
		return ended(g.fail(ctx, p, cerr))
	}
	v := Vote{ApprovalID: a.ID, Person: d.Approver.ID, Actor: d.Approver, Yes: d.Yes, Comment: d.Comment, Groups: groups, At: g.now()}
	if Tally(a.Requirements, []Vote{v}) == VerdictOpen {
		return g.firstVote(ctx, p, a, *d)
	}
	return g.decidedInline(ctx, p, a, v)
}

// answerInline asks the handler in a goroutine of its own, so that one that
// ignores ctx does not hold the call.
func (g *Gate) answerInline(ctx context.Context, a Approval) (*Decision, error) {
	type answer struct {
		d   *Decision
		err error
	}
	ch := make(chan answer, 1)
	go func() {
		got := answer{err: errors.New("inline approval panicked")}
		defer func() {
			_ = recover()
			ch <- got
		}()
		got.d, got.err = g.cfg.Approvals.Handler(ctx, a.clone())
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case got := <-ch:
		if got.err != nil || got.d == nil {
			return nil, got.err
		}
		d := *got.d
		return &d, nil
	}
}

// mayInline holds an inline decision to the rules of a vote.
func (g *Gate) mayInline(ctx context.Context, a Approval, d Decision) ([]string, error) {
	_, self, err := g.person(ctx, d.Approver, a.Actor)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if self && !g.cfg.AllowSelfApproval {
		return nil, capability.Fail(capability.CodeSelfApproval)
	}
	switch ans, why := g.cfg.Electors.MayDecide(ctx, a, d.Approver); ans {
	case AnswerYes:
		return g.groups(ctx, a, d)
	case AnswerCannotTell:
		return nil, fmt.Errorf("%w: %s", ErrUndecided, why)
	case AnswerNo:
		return nil, capability.Fail(capability.CodeForbidden).Say(why)
	}
	return nil, capability.Fail(capability.CodeForbidden)
}

// firstVote keeps the question with a yes that is not enough by itself.
func (g *Gate) firstVote(ctx context.Context, p *pass, a Approval, d Decision) (*capability.Result, error) {
	res, err := g.suspend(ctx, p, a)
	if err != nil {
		return nil, err
	}
	if d.Cause == "" {
		d.Cause = "inline/" + a.ID
	}
	if _, err := g.Decide(ctx, d); err != nil && !errors.Is(err, ErrUndecided) && capability.CodeOf(err) == "" {
		return nil, err
	}
	return &res, nil
}

// decidedInline puts a decision on record, then acts on it. If it cannot be put
// on record nothing runs, and the repeat of the call asks again.
func (g *Gate) decidedInline(ctx context.Context, p *pass, a Approval, v Vote) (*capability.Result, error) {
	asked := g.event(EventApprovalRequested, p.e, a.RequestedAt, a.summary())
	asked.ApprovalID = a.ID
	asked.Data["inline"] = true
	t := EventApproved
	a.State, a.DecidedAt, a.DecidedBy, a.Comment, a.Votes = ApprovalApproved, v.At, v.Actor, v.Comment, []Vote{v}
	if !v.Yes {
		t, a.State = EventRejected, ApprovalRejected
	}
	decided := g.approvalEvent(t, a, v.Actor, v.At, map[string]any{"inline": true, "digest": a.Digest})
	for _, ev := range []Event{asked, decided} {
		if err := g.ledger.Record(ctx, ev); err != nil {
			return nil, fmt.Errorf("record inline decision: %w", err)
		}
	}
	if !v.Yes {
		return ended(g.fail(ctx, p, capability.Fail(capability.CodeApprovalRejected)))
	}
	p.approval, p.inline = &a, true
	return nil, nil //nolint:nilnil // the call goes on
}

// clone gives a copy that shares nothing with a.
func (a Approval) clone() Approval {
	a.Input, a.Reasons = slices.Clone(a.Input), slices.Clone(a.Reasons)
	a.Requirements.Types, a.Requirements.Groups = slices.Clone(a.Requirements.Types), slices.Clone(a.Requirements.Groups)
	a.Actor.Attributes = maps.Clone(a.Actor.Attributes)
	return a
}
