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
	a, err := g.cfg.Ledger.Approval(ctx, approvalID)
	if err != nil {
		return false, fmt.Errorf("read approval: %w", err)
	}
	if !a.State.Open() || !a.ExpiredAt(g.now()) {
		return false, nil
	}
	if _, err := g.expire(ctx, a); errors.Is(err, ErrState) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return true, nil
}

func (g *Gate) expire(ctx context.Context, a Approval) (Approval, error) {
	now := g.now()
	after, err := g.cfg.Ledger.Close(ctx, Close{
		ApprovalID: a.ID, From: []ApprovalState{ApprovalPending, ApprovalApproved}, To: ApprovalExpired, At: now,
		Event: g.approvalEvent(EventExpired, a, capability.Actor{}, now, map[string]any{"was": a.State}),
	})
	if err != nil {
		return a, fmt.Errorf("expire approval: %w", err)
	}
	return after, nil
}

// Cancel ends an open approval without a run. The asker may, and whoever could
// decide it; by zero means the house itself. Refusals are a [capability.Error]
// fit for the room; [ErrUndecided] when it cannot be told.
func (g *Gate) Cancel(ctx context.Context, approvalID string, by capability.Actor, why string) (Approval, error) {
	a, err := g.cfg.Ledger.Approval(ctx, approvalID)
	if errors.Is(err, ErrNotFound) {
		return Approval{}, capability.Fail(capability.CodeInternal).Because(err)
	} else if err != nil {
		return Approval{}, fmt.Errorf("read approval: %w", err)
	}
	if a.State == ApprovalCancelled && a.DecidedBy.Is(by) {
		return a, nil
	}
	if by.ID != "" {
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
	if !a.State.Open() {
		return a, g.undecidable(ctx, a)
	}
	now := g.now()
	after, err := g.cfg.Ledger.Close(ctx, Close{
		ApprovalID: a.ID, From: []ApprovalState{ApprovalPending, ApprovalApproved}, To: ApprovalCancelled,
		By: by, Comment: why, At: now, Event: g.approvalEvent(EventApprovalCancelled, a, by, now, map[string]any{"was": a.State}),
	})
	if errors.Is(err, ErrState) {
		if a, err = g.cfg.Ledger.Approval(ctx, a.ID); err != nil {
			return a, fmt.Errorf("read approval: %w", err)
		}
		if cerr := g.undecidable(ctx, a); cerr != nil {
			return a, cerr
		}
		return a, fmt.Errorf("cancel approval: %w", ErrState)
	}
	if err != nil {
		return a, fmt.Errorf("cancel approval: %w", err)
	}
	return after, nil
}

func (g *Gate) mayDecide(ctx context.Context, a Approval, who capability.Actor) error {
	ans, why := g.cfg.Electors.MayDecide(ctx, a, who)
	switch ans {
	case AnswerYes:
		return nil
	case AnswerCannotTell:
		return fmt.Errorf("%w: %s", ErrUndecided, why)
	case AnswerNo:
	}
	return capability.Fail(capability.CodeForbidden).Say(why)
}

// Settle records what a person says really happened to an execution whose
// outcome is unknown. Only somebody who could decide the call may; nothing is
// run. Refusals are a [capability.Error] fit for the room.
func (g *Gate) Settle(ctx context.Context, executionID string, by capability.Actor, done bool, note string) (Execution, error) {
	e, err := g.cfg.Ledger.Execution(ctx, executionID)
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
		if a, err = g.cfg.Ledger.Approval(ctx, e.ApprovalID); err != nil {
			return e, fmt.Errorf("read approval: %w", err)
		}
	}
	_, self, err := g.person(ctx, by, e.Actor)
	if err != nil {
		return e, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if self && !g.cfg.AllowSelfApproval {
		return e, capability.Fail(capability.CodeSelfApproval).Say("You asked for this yourself, so somebody else has to say how it ended.")
	}
	if err := g.mayDecide(ctx, a, by); err != nil {
		return e, err
	}
	now := g.now()
	s := Settlement{By: by, Done: done, Note: note, At: now}
	ev := g.event(EventSettled, e, now, map[string]any{"done": done, "asker": e.Actor.ID})
	ev.Actor = capability.Actor{ID: by.ID, Kind: by.Kind}
	if err := g.cfg.Ledger.Settle(ctx, e.ID, s, ev); errors.Is(err, ErrState) {
		return e, capability.Failed("Somebody has already settled it.", true)
	} else if err != nil {
		return e, fmt.Errorf("record settlement: %w", err)
	}
	e.Settled = &s
	return e, nil
}
