package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"go.mau.fi/util/dbutil"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

const countExecution = `SELECT COUNT(*) FROM execution WHERE id=$1`

// Claim implements [gate.Ledger].
func (l *Ledger) Claim(ctx context.Context, e gate.Execution, ev gate.Event) (gate.Execution, bool, error) {
	input, err := exact(e.Input)
	if err != nil {
		return gate.Execution{}, false, fmt.Errorf("claim: %w", err)
	}
	actor, err := toJSON(e.Actor)
	if err != nil {
		return gate.Execution{}, false, fmt.Errorf("claim: %w", err)
	}
	created := l.s.orNow(e.CreatedAt)
	var have gate.Execution
	var fresh bool
	err = l.s.write(ctx, "claim", func(ctx context.Context) error {
		n, err := l.s.exec(ctx, `INSERT INTO execution (id, key, capability_id, claim_hash, input, input_hash, revision, actor, surface,
				place, lane, origin_ref, correlation_id, approval_id, state, created_at, trace)
			VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17) ON CONFLICT (key) DO NOTHING`,
			e.ID, e.Key, e.CapabilityID, e.ClaimHash, input, e.InputHash, e.Revision, actor, string(e.Surface),
			e.Origin.Place, e.Origin.Lane, e.Origin.Ref, e.CorrelationID, e.ApprovalID, string(gate.ExecClaimed), toMS(created), e.Trace)
		if err != nil {
			return err
		}
		if have, err = l.s.execution(ctx, "key", e.Key); err != nil {
			return err
		}
		if fresh = n > 0; fresh {
			return l.s.audit(ctx, ev)
		}
		if have.CapabilityID != e.CapabilityID || have.ClaimHash != e.ClaimHash {
			return gate.ErrClaim
		}
		return nil
	})
	if err != nil {
		return gate.Execution{}, false, err
	}
	return have, fresh, nil
}

// Start implements [gate.Ledger].
func (l *Ledger) Start(ctx context.Context, st gate.Start) error {
	input, err := exact(st.Input)
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	return l.s.write(ctx, "start", func(ctx context.Context) error {
		n, err := l.s.exec(ctx, `UPDATE execution SET state='started', input=$1, input_hash=$2, revision=$3, started_at=$4,
				approval_id=CASE WHEN $5='' THEN approval_id ELSE $5 END
			WHERE id=$6 AND state='claimed'`,
			input, st.InputHash, st.Revision, toMS(st.At), st.ApprovalID, st.ExecutionID)
		if err != nil {
			return err
		}
		if n == 0 {
			return l.s.orState(ctx, countExecution, st.ExecutionID)
		}
		if err := l.s.audit(ctx, st.Event); err != nil {
			return err
		}
		if st.ApprovalID == "" {
			return nil
		}
		n, err = l.s.exec(ctx, `UPDATE approval SET state='consumed', consumed_by=$1
			WHERE id=$2 AND state='approved' AND (expires_at=0 OR expires_at>$3)`, st.ExecutionID, st.ApprovalID, toMS(st.At))
		if err != nil {
			return err
		}
		if n == 0 {
			return l.s.orState(ctx, countApproval, st.ApprovalID)
		}
		return l.s.addWorkRows(ctx, st.At, show(st.ApprovalID, gate.ApprovalConsumed))
	})
}

// Finish implements [gate.Ledger].
func (l *Ledger) Finish(ctx context.Context, f gate.Finish) error {
	result, err := toJSON(f.Result)
	if err != nil {
		return fmt.Errorf("finish: %w", err)
	}
	unsettled := yesNo(gate.Execution{State: f.To, Result: &f.Result}.Unsettled())
	return l.s.write(ctx, "finish", func(ctx context.Context) error {
		var w where
		set := `UPDATE execution SET state=` + w.arg(string(f.To)) + `, result=` + w.arg(result) +
			`, finished_at=` + w.arg(toMS(f.At)) + `, unsettled=` + w.arg(unsettled)
		w.is("id", f.ExecutionID)
		among(&w, "state", f.From)
		var lane string
		err := l.s.one(ctx, set+w.String()+` RETURNING lane`, w.args...).Scan(&lane)
		if errors.Is(err, sql.ErrNoRows) {
			return l.s.orState(ctx, countExecution, f.ExecutionID)
		}
		if err != nil {
			return err
		}
		if err := l.s.audit(ctx, f.Event); err != nil {
			return err
		}
		return l.s.addWorkRows(ctx, f.At, report(f.ExecutionID, lane)...)
	})
}

// Settle implements [gate.Ledger].
func (l *Ledger) Settle(ctx context.Context, executionID string, st gate.Settlement, ev gate.Event) error {
	text, err := toJSON(st)
	if err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return l.s.write(ctx, "settle", func(ctx context.Context) error {
		n, err := l.s.exec(ctx, `UPDATE execution SET settled=$1, unsettled=0 WHERE id=$2 AND unsettled=1`, text, executionID)
		if err != nil {
			return err
		}
		if n == 0 {
			return l.s.orState(ctx, countExecution, executionID)
		}
		if err := l.s.audit(ctx, ev); err != nil {
			return err
		}
		return l.s.addWorkRows(ctx, st.At, settled(executionID))
	})
}

// Execution implements [gate.Ledger].
func (l *Ledger) Execution(ctx context.Context, id string) (gate.Execution, error) {
	return l.s.execution(ctx, "id", id)
}

const executionColumns = `id, key, capability_id, claim_hash, input, input_hash, revision, actor, surface, place, lane, origin_ref,
	correlation_id, approval_id, state, result, settled, created_at, started_at, finished_at, trace`

// execution reads one by a column that is unique.
func (s *Store) execution(ctx context.Context, column, v string) (gate.Execution, error) {
	e, err := scanExecution(s.read(ctx).QueryRowContext(ctx, `SELECT `+executionColumns+` FROM execution WHERE `+column+`=$1`, v))
	if err != nil {
		return gate.Execution{}, orNotFound("execution", err)
	}
	return e, nil
}

// Executions implements [gate.Ledger].
func (l *Ledger) Executions(ctx context.Context, f gate.ExecutionFilter) ([]gate.Execution, error) {
	var w where
	w.equal("place", f.Place)
	w.equal("lane", f.Lane)
	w.prefix("id", f.IDPrefix)
	in(&w, "state", f.States)
	if f.Unsettled {
		w.raw("unsettled=1")
	}
	all, err := list(ctx, l.s.read(ctx), scanExecution,
		`SELECT `+executionColumns+` FROM execution`+w.String()+` ORDER BY seq DESC`+w.limit(f.Limit, defaultList), w.args...)
	if err != nil {
		return nil, fmt.Errorf("executions: %w", err)
	}
	return all, nil
}

func scanExecution(row dbutil.Scannable) (e gate.Execution, err error) {
	var input, actor, result, settled string
	var created, started, finished int64
	err = row.Scan(&e.ID, &e.Key, &e.CapabilityID, &e.ClaimHash, &input, &e.InputHash, &e.Revision, &actor, &e.Surface,
		&e.Origin.Place, &e.Origin.Lane, &e.Origin.Ref, &e.CorrelationID, &e.ApprovalID, &e.State, &result, &settled,
		&created, &started, &finished, &e.Trace)
	if err != nil {
		return e, err
	}
	e.Input = rawJSON(input)
	e.CreatedAt, e.StartedAt, e.FinishedAt = fromMS(created), fromMS(started), fromMS(finished)
	if result != "" {
		e.Result = new(capability.Result)
	}
	if settled != "" {
		e.Settled = new(gate.Settlement)
	}
	return e, errors.Join(fromJSON(actor, &e.Actor), fromJSON(result, e.Result), fromJSON(settled, e.Settled))
}

func yesNo(b bool) int {
	if b {
		return 1
	}
	return 0
}
