package store

import (
	"context"
	"errors"
	"fmt"

	"go.mau.fi/util/dbutil"

	"moothall/bridge/queue"
	"moothall/runtime/gate"
)

const countApproval = `SELECT COUNT(*) FROM approval WHERE id=$1`

// Pend implements [gate.Ledger].
func (l *Ledger) Pend(ctx context.Context, p gate.Pend) error {
	result, err := toJSON(p.Result)
	if err != nil {
		return fmt.Errorf("pend: %w", err)
	}
	a := p.Approval
	insert, err := approvalArgs(a)
	if err != nil {
		return fmt.Errorf("pend: %w", err)
	}
	return l.s.write(ctx, "pend", func(ctx context.Context) error {
		n, err := l.s.exec(ctx, `UPDATE execution SET state='suspended', result=$1, approval_id=$2, finished_at=$3
			WHERE id=$4 AND state='claimed'`, result, a.ID, toMS(p.Event.At), p.ExecutionID)
		if err != nil {
			return err
		}
		if n == 0 {
			return l.s.orState(ctx, countExecution, p.ExecutionID)
		}
		_, err = l.s.exec(ctx, `INSERT INTO approval (id, execution_id, capability_id, revision, actor, surface, place, lane, origin_ref,
				correlation_id, input, input_hash, digest, reasons, requirements, side_effect, risk, state, requested_at, expires_at, trace)
			VALUES `+l.s.values(1, len(insert)), insert...)
		if err != nil {
			return err
		}
		if err := l.s.audit(ctx, p.Event); err != nil {
			return err
		}
		work := []queue.Work{announce(a.ID)}
		if !a.ExpiresAt.IsZero() {
			work = append(work, expire(a.ID, a.ExpiresAt))
		}
		return l.s.addWorkRows(ctx, p.Event.At, work...)
	})
}

// approvalArgs gives the columns of a new, pending approval.
func approvalArgs(a gate.Approval) ([]any, error) {
	input, err1 := exact(a.Input)
	actor, err2 := toJSON(a.Actor)
	reasons, err3 := toJSON(a.Reasons)
	requirements, err4 := toJSON(a.Requirements)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return []any{
		a.ID, a.ExecutionID, a.CapabilityID, a.Revision, actor, string(a.Surface), a.Origin.Place, a.Origin.Lane, a.Origin.Ref,
		a.CorrelationID, input, a.InputHash, a.Digest, reasons, requirements, string(a.SideEffect), string(a.Risk),
		string(gate.ApprovalPending), toMS(a.RequestedAt), toMS(a.ExpiresAt), a.Trace,
	}, nil
}

// Cast implements [gate.Ledger].
func (l *Ledger) Cast(ctx context.Context, v gate.Vote, ev gate.Event) (gate.Approval, error) {
	actor, err := toJSON(v.Actor)
	if err != nil {
		return gate.Approval{}, fmt.Errorf("cast: %w", err)
	}
	groups, err := toJSON(v.Groups)
	if err != nil {
		return gate.Approval{}, fmt.Errorf("cast: %w", err)
	}
	var a gate.Approval
	err = l.s.write(ctx, "cast", func(ctx context.Context) (err error) {
		if a, err = l.s.approval(ctx, v.ApprovalID, l.s.forUpdate()); err != nil {
			return err
		}
		if a.State != gate.ApprovalPending || a.ExpiredAt(v.At) {
			return gate.ErrState
		}
		// The person's place in the order is that of the later vote.
		if _, err := l.s.exec(ctx, `DELETE FROM vote WHERE approval_id=$1 AND person=$2`, a.ID, v.Person); err != nil {
			return err
		}
		_, err = l.s.exec(ctx, `INSERT INTO vote (approval_id, person, actor, yes, comment, cause, member_of, at)
			VALUES ($1,$2,$3,$4,$5,$6,$7,$8)`,
			a.ID, v.Person, actor, yesNo(v.Yes), clean(v.Comment), v.Cause, groups, toMS(v.At))
		if err != nil {
			return err
		}
		if a.Votes, err = l.s.votes(ctx, a.ID); err != nil {
			return err
		}
		return l.s.tally(ctx, &a, v, actor, ev)
	})
	if err != nil {
		return gate.Approval{}, err
	}
	return a, nil
}

// tally weighs the votes of a, which now hold v, and ends the vote if they decide.
func (s *Store) tally(ctx context.Context, a *gate.Approval, v gate.Vote, actor string, ev gate.Event) error {
	ev.Type = gate.EventVoted
	switch gate.Tally(a.Requirements, a.Votes) {
	case gate.VerdictApproved:
		a.State, ev.Type = gate.ApprovalApproved, gate.EventApproved
	case gate.VerdictRejected:
		a.State, ev.Type = gate.ApprovalRejected, gate.EventRejected
	case gate.VerdictOpen:
		return s.audit(ctx, ev)
	}
	a.DecidedAt, a.DecidedBy, a.Comment = fromMS(toMS(v.At)), v.Actor, clean(v.Comment)
	n, err := s.exec(ctx, `UPDATE approval SET state=$1, decided_at=$2, decided_by=$3, comment=$4 WHERE id=$5 AND state='pending'`,
		string(a.State), toMS(v.At), actor, a.Comment, a.ID)
	if err != nil {
		return err
	}
	if n == 0 {
		return gate.ErrState
	}
	if err := s.audit(ctx, ev); err != nil {
		return err
	}
	work := []queue.Work{show(a.ID, a.State)}
	if a.State == gate.ApprovalApproved {
		work = append(work, resume(a.ID, a.Origin.Lane)...)
	}
	return s.addWorkRows(ctx, v.At, work...)
}

// Close implements [gate.Ledger].
func (l *Ledger) Close(ctx context.Context, c gate.Close) (gate.Approval, error) {
	by := ""
	if c.By.ID != "" {
		var err error
		if by, err = toJSON(c.By); err != nil {
			return gate.Approval{}, fmt.Errorf("close: %w", err)
		}
	}
	var a gate.Approval
	err := l.s.write(ctx, "close", func(ctx context.Context) error {
		var w where
		set := `UPDATE approval SET state=` + w.arg(string(c.To)) + `, decided_at=` + w.arg(toMS(c.At)) +
			`, decided_by=` + w.arg(by) + `, comment=` + w.arg(clean(c.Comment))
		w.is("id", c.ApprovalID)
		among(&w, "state", c.From)
		n, err := l.s.exec(ctx, set+w.String(), w.args...)
		if err != nil {
			return err
		}
		if n == 0 {
			return l.s.orState(ctx, countApproval, c.ApprovalID)
		}
		if err := l.s.audit(ctx, c.Event); err != nil {
			return err
		}
		if a, err = l.s.approval(ctx, c.ApprovalID, ""); err != nil {
			return err
		}
		return l.s.addWorkRows(ctx, c.At, show(c.ApprovalID, c.To))
	})
	if err != nil {
		return gate.Approval{}, err
	}
	return a, nil
}

// Approval implements [gate.Ledger].
func (l *Ledger) Approval(ctx context.Context, id string) (gate.Approval, error) {
	return l.s.approval(ctx, id, "")
}

const approvalColumns = `id, execution_id, capability_id, revision, actor, surface, place, lane, origin_ref, correlation_id,
	input, input_hash, digest, reasons, requirements, side_effect, risk, state, requested_at, expires_at,
	decided_at, decided_by, comment, consumed_by, trace`

// approval reads one with its votes; lock ends the query.
func (s *Store) approval(ctx context.Context, id, lock string) (gate.Approval, error) {
	a, err := scanApproval(s.read(ctx).QueryRowContext(ctx, `SELECT `+approvalColumns+` FROM approval WHERE id=$1`+lock, id))
	if err != nil {
		return gate.Approval{}, orNotFound("approval", err)
	}
	if a.Votes, err = s.votes(ctx, id); err != nil {
		return gate.Approval{}, err
	}
	return a, nil
}

// Approvals implements [gate.Ledger].
func (l *Ledger) Approvals(ctx context.Context, f gate.ApprovalFilter) ([]gate.Approval, error) {
	var w where
	w.equal("place", f.Place)
	w.equal("lane", f.Lane)
	w.prefix("id", f.IDPrefix)
	in(&w, "state", f.States)
	all, err := list(ctx, l.s.read(ctx), scanApproval,
		`SELECT `+approvalColumns+` FROM approval`+w.String()+` ORDER BY seq`+w.limit(f.Limit, defaultList), w.args...)
	if err != nil {
		return nil, fmt.Errorf("approvals: %w", err)
	}
	for i := range all {
		if all[i].Votes, err = l.s.votes(ctx, all[i].ID); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func scanApproval(row dbutil.Scannable) (a gate.Approval, err error) {
	var actor, input, reasons, requirements, by string
	var requested, expires, decided int64
	err = row.Scan(&a.ID, &a.ExecutionID, &a.CapabilityID, &a.Revision, &actor, &a.Surface, &a.Origin.Place, &a.Origin.Lane, &a.Origin.Ref,
		&a.CorrelationID, &input, &a.InputHash, &a.Digest, &reasons, &requirements, &a.SideEffect, &a.Risk, &a.State,
		&requested, &expires, &decided, &by, &a.Comment, &a.ConsumedBy, &a.Trace)
	if err != nil {
		return a, err
	}
	a.Input = rawJSON(input)
	a.RequestedAt, a.ExpiresAt, a.DecidedAt = fromMS(requested), fromMS(expires), fromMS(decided)
	return a, errors.Join(fromJSON(actor, &a.Actor), fromJSON(reasons, &a.Reasons),
		fromJSON(requirements, &a.Requirements), fromJSON(by, &a.DecidedBy))
}

// votes lists the votes on an approval in the order they were cast.
func (s *Store) votes(ctx context.Context, id string) ([]gate.Vote, error) {
	votes, err := list(ctx, s.read(ctx), func(row dbutil.Scannable) (v gate.Vote, err error) {
		var actor, groups string
		var yes int
		var at int64
		if err = row.Scan(&v.Person, &actor, &yes, &v.Comment, &v.Cause, &groups, &at); err != nil {
			return v, err
		}
		v.ApprovalID, v.Yes, v.At = id, yes == 1, fromMS(at)
		return v, errors.Join(fromJSON(actor, &v.Actor), fromJSON(groups, &v.Groups))
	}, `SELECT person, actor, yes, comment, cause, member_of, at FROM vote WHERE approval_id=$1 ORDER BY seq`, id)
	if err != nil {
		return nil, fmt.Errorf("votes: %w", err)
	}
	return votes, nil
}
