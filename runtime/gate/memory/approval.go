package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// Pend implements [gate.Ledger].
func (l *Ledger) Pend(ctx context.Context, p gate.Pend) error {
	return l.step(ctx, "pend", func() ([]followUp, error) {
		a := copyApproval(p.Approval)
		if !plain(string(a.Input)) {
			return nil, errNotText
		}
		e, err := l.inState(p.ExecutionID, gate.ExecClaimed)
		if err != nil {
			return nil, err
		}
		if _, ok := l.approvals[a.ID]; ok {
			return nil, fmt.Errorf("approval %s already exists", a.ID)
		}
		result, err := copyResult(&p.Result)
		if err != nil {
			return nil, err
		}
		if err := l.audit(p.Event); err != nil {
			return nil, err
		}
		e.State, e.Result, e.ApprovalID, e.FinishedAt = gate.ExecSuspended, result, a.ID, ms(p.Event.At)
		l.executions[e.ID] = e
		a.State, a.Votes, a.ConsumedBy = gate.ApprovalPending, nil, ""
		l.approvals[a.ID] = a
		l.aprOrder = append(l.aprOrder, a.ID)
		rows := []followUp{{KindAnnounce, a.ID}}
		if !a.ExpiresAt.IsZero() {
			rows = append(rows, followUp{KindExpire, a.ID})
		}
		return rows, nil
	})
}

// Cast implements [gate.Ledger].
func (l *Ledger) Cast(ctx context.Context, v gate.Vote, ev gate.Event) (after gate.Approval, err error) {
	err = l.step(ctx, "cast", func() ([]followUp, error) {
		have, ok := l.approvals[v.ApprovalID]
		if !ok {
			return nil, gate.ErrNotFound
		}
		if have.State != gate.ApprovalPending || have.ExpiredAt(ms(v.At)) {
			return nil, gate.ErrState
		}
		a := copyApproval(have)
		v.Actor, v.Comment, v.At = copyActor(v.Actor), clean(v.Comment), ms(v.At)
		a.Votes = append(slices.DeleteFunc(a.Votes, func(o gate.Vote) bool { return o.Person == v.Person }), v)
		rows := []followUp{{KindShow, a.ID}}
		ev.Type = gate.EventVoted
		switch gate.Tally(a.Requirements, a.Votes) {
		case gate.VerdictApproved:
			a.State, ev.Type = gate.ApprovalApproved, gate.EventApproved
			if a.Origin.Lane != "" {
				rows = append(rows, followUp{KindResume, a.ID})
			}
		case gate.VerdictRejected:
			a.State, ev.Type = gate.ApprovalRejected, gate.EventRejected
		case gate.VerdictOpen:
			rows = nil
		}
		if a.State != gate.ApprovalPending {
			a.DecidedAt, a.DecidedBy, a.Comment = v.At, v.Actor, v.Comment
		}
		if err := l.audit(ev); err != nil {
			return nil, err
		}
		l.approvals[a.ID] = a
		after = copyApproval(a)
		return rows, nil
	})
	return after, err
}

// Close implements [gate.Ledger].
func (l *Ledger) Close(ctx context.Context, c gate.Close) (after gate.Approval, err error) {
	err = l.step(ctx, "close", func() ([]followUp, error) {
		have, ok := l.approvals[c.ApprovalID]
		if !ok {
			return nil, gate.ErrNotFound
		}
		if !slices.Contains(c.From, have.State) {
			return nil, gate.ErrState
		}
		if err := l.audit(c.Event); err != nil {
			return nil, err
		}
		a := copyApproval(have)
		a.State, a.DecidedAt, a.DecidedBy, a.Comment = c.To, ms(c.At), capability.Actor{}, clean(c.Comment)
		if c.By.ID != "" {
			a.DecidedBy = copyActor(c.By)
		}
		l.approvals[a.ID] = a
		after = copyApproval(a)
		return []followUp{{KindShow, a.ID}}, nil
	})
	return after, err
}

// Approval implements [gate.Ledger].
func (l *Ledger) Approval(ctx context.Context, id string) (a gate.Approval, err error) {
	err = l.step(ctx, "approval", func() ([]followUp, error) {
		have, ok := l.approvals[id]
		if !ok {
			return nil, gate.ErrNotFound
		}
		a = copyApproval(have)
		return nil, nil
	})
	return a, err
}

// Approvals implements [gate.Ledger].
func (l *Ledger) Approvals(ctx context.Context, f gate.ApprovalFilter) (out []gate.Approval, err error) {
	err = l.step(ctx, "approvals", func() ([]followUp, error) {
		for _, id := range l.aprOrder {
			a := l.approvals[id]
			if len(out) >= orDefault(f.Limit, defaultList) {
				break
			}
			if not(f.Place, a.Origin.Place) || not(f.Lane, a.Origin.Lane) || !strings.HasPrefix(a.ID, f.IDPrefix) ||
				(len(f.States) > 0 && !slices.Contains(f.States, a.State)) {
				continue
			}
			out = append(out, copyApproval(a))
		}
		return nil, nil
	})
	return out, err
}

func copyActor(a capability.Actor) capability.Actor {
	a.Attributes = maps.Clone(a.Attributes)
	return a
}

func copyApproval(a gate.Approval) gate.Approval {
	a.Actor, a.DecidedBy, a.Input, a.Reasons = copyActor(a.Actor), copyActor(a.DecidedBy), slices.Clone(a.Input), slices.Clone(a.Reasons)
	a.Requirements.Types, a.Requirements.Groups = slices.Clone(a.Requirements.Types), slices.Clone(a.Requirements.Groups)
	a.RequestedAt, a.ExpiresAt, a.DecidedAt = ms(a.RequestedAt), ms(a.ExpiresAt), ms(a.DecidedAt)
	a.Votes = slices.Clone(a.Votes)
	for i := range a.Votes {
		a.Votes[i].Actor, a.Votes[i].Groups = copyActor(a.Votes[i].Actor), slices.Clone(a.Votes[i].Groups)
	}
	return a
}
