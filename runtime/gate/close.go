package gate

import (
	"context"
	"errors"
	"fmt"

	"moothall/runtime/capability"
)

// Expire ends an approval whose deadline has come, decided or not. It reports
// whether it did; an approval that is closed, or not yet due, is left alone.
func (g *Gate) Expire(ctx context.Context, approvalID string) (bool, error) {
	a, err := g.ledger.Approval(ctx, approvalID)
	if err != nil {
		return false, fmt.Errorf("read approval: %w", err)
	}
	if !a.State.Open() || !a.ExpiredAt(g.now()) {
		return false, nil
	}
	if err := g.expire(ctx, a); errors.Is(err, ErrState) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}

func (g *Gate) expire(ctx context.Context, a Approval) error {
	now := g.now()
	_, err := g.ledger.Close(ctx, Close{
		ApprovalID: a.ID, From: []ApprovalState{ApprovalPending, ApprovalApproved}, To: ApprovalExpired, At: now,
		Event: g.approvalEvent(EventExpired, a, capability.Actor{}, now, map[string]any{"was": a.State}),
	})
	if err != nil {
		return fmt.Errorf("expire approval: %w", err)
	}
	return nil
}

// Cancel ends an open approval without a run. The asker may, and whoever could
// decide it; by zero means the house itself. Refusals are a [capability.Error]
// fit for the room; [ErrUndecided] when it cannot be told.
func (g *Gate) Cancel(ctx context.Context, approvalID string, by capability.Actor, why string) (Approval, error) {
	a, err := g.ledger.Approval(ctx, approvalID)
	if errors.Is(err, ErrNotFound) {
		return Approval{}, noApproval().Because(err)
	} else if err != nil {
		return Approval{}, fmt.Errorf("read approval: %w", err)
	}
	if a.State == ApprovalCancelled && a.DecidedBy.Is(by) {
		return a, nil
	}
	if by.ID != "" {
		if !by.Valid() {
			return a, g.refuse(ctx, a, Decision{Approver: by}, capability.Fail(capability.CodeUnauthenticated))
		}
		_, self, err := g.person(ctx, by, a.Actor)
		if err != nil {
			return a, fmt.Errorf("%w: %w", ErrUndecided, err)
		}
		if !self {
			if err := g.mayDecide(ctx, a, by); err != nil {
				return a, err
			}
		}
	}
	if cerr := g.ended(ctx, a); cerr != nil {
		return a, cerr
	}
	now := g.now()
	after, err := g.ledger.Close(ctx, Close{
		ApprovalID: a.ID, From: []ApprovalState{ApprovalPending, ApprovalApproved}, To: ApprovalCancelled,
		By: by, Comment: why, At: now, Event: g.approvalEvent(EventApprovalCancelled, a, by, now, map[string]any{"was": a.State}),
	})
	if errors.Is(err, ErrState) {
		if a, err = g.ledger.Approval(ctx, a.ID); err != nil {
			return a, fmt.Errorf("read approval: %w", err)
		}
		if cerr := g.ended(ctx, a); cerr != nil {
			return a, cerr
		}
		return a, fmt.Errorf("cancel approval: %w", ErrState)
	}
	if err != nil {
		return a, fmt.Errorf("cancel approval: %w", err)
	}
	return after, nil
}

// ended says why a can no longer lead to a run, or nil. A deadline that has come
// is acted on here, too.
func (g *Gate) ended(ctx context.Context, a Approval) *capability.Error {
	if a.State.Open() && !a.ExpiredAt(g.now()) {
		return nil
	}
	if a.State == ApprovalApproved {
		return g.unresumable(ctx, a)
	}
	return g.undecidable(ctx, a)
}

// mayDecide asks the electors for a step other than a vote; a no is audited.
func (g *Gate) mayDecide(ctx context.Context, a Approval, who capability.Actor) error {
	ans, why := g.cfg.Electors.MayDecide(ctx, a, who)
	switch ans {
	case AnswerYes:
		return nil
	case AnswerCannotTell:
		return fmt.Errorf("%w: %s", ErrUndecided, why)
	case AnswerNo:
	}
	return g.refuse(ctx, a, Decision{Approver: who}, capability.Fail(capability.CodeForbidden).Say(why))
}

// Settle records what a person says really happened to an execution whose
// outcome is unknown. Only somebody who could decide the call may; nothing is
// run. Refusals are a [capability.Error] fit for the room.
func (g *Gate) Settle(ctx context.Context, executionID string, by capability.Actor, done bool, note string) (Execution, error) {
	e, err := g.ledger.Execution(ctx, executionID)
	if errors.Is(err, ErrNotFound) {
		return Execution{}, capability.Fail(capability.CodeInternal).Because(err)
	} else if err != nil {
		return Execution{}, fmt.Errorf("read execution: %w", err)
	}
	if e.Settled != nil && e.Settled.By.Is(by) && e.Settled.Done == done {
		return e, nil
	}
	if !e.Unsettled() {
		return e, capability.Failed("Nothing about it is unknown, so there is nothing to settle.", true)
	}
	a := Approval{
		ID: e.ApprovalID, ExecutionID: e.ID, CapabilityID: e.CapabilityID, Actor: e.Actor, Surface: e.Surface,
		Origin: e.Origin, Requirements: Requirements{Quorum: 1},
	}
	if e.ApprovalID != "" {
		if a, err = g.ledger.Approval(ctx, e.ApprovalID); err != nil {
			return e, fmt.Errorf("read approval: %w", err)
		}
	}
	if !by.Valid() {
		return e, g.refuse(ctx, a, Decision{Approver: by}, capability.Fail(capability.CodeUnauthenticated))
	}
	_, self, err := g.person(ctx, by, e.Actor)
	if err != nil {
		return e, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if self && !g.cfg.AllowSelfApproval {
		return e, g.refuse(ctx, a, Decision{Approver: by}, capability.Fail(capability.CodeSelfApproval).Say("You asked for this yourself, so somebody else has to say how it ended."))
	}
	if err := g.mayDecide(ctx, a, by); err != nil {
		return e, err
	}
	now := g.now()
	s := Settlement{By: by, Done: done, Note: note, At: now}
	ev := g.event(EventSettled, e, now, map[string]any{"done": done, "asker": e.Actor.ID})
	ev.Actor = capability.Actor{ID: by.ID, Kind: by.Kind}
	if err := g.ledger.Settle(ctx, e.ID, s, ev); errors.Is(err, ErrState) {
		return e, capability.Failed("Somebody has already settled it.", true)
	} else if err != nil {
		return e, fmt.Errorf("record settlement: %w", err)
	}
	e.Settled = &s
	return e, nil
}
