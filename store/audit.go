package store

import (
	"context"
	"fmt"

	"go.mau.fi/util/dbutil"

	"moothall/runtime/gate"
)

const defaultEvents = 1000

// Record implements [gate.Ledger].
func (l *Ledger) Record(ctx context.Context, ev gate.Event) error {
	return l.s.write(ctx, "record", func(ctx context.Context) error { return l.s.audit(ctx, ev) })
}

// audit adds an audit row inside a write.
func (s *Store) audit(ctx context.Context, ev gate.Event) error {
	data := ""
	if len(ev.Data) > 0 {
		var err error
		if data, err = toJSON(ev.Data); err != nil {
			return fmt.Errorf("audit: %w", err)
		}
	}
	_, err := s.exec(ctx, `INSERT INTO audit (type, at, surface, actor_id, actor_kind, execution_id, approval_id,
			capability_id, correlation_id, input_hash, data) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11)`,
		string(ev.Type), toMS(s.orNow(ev.At)), string(ev.Surface), ev.Actor.ID, string(ev.Actor.Kind), ev.ExecutionID, ev.ApprovalID,
		ev.CapabilityID, ev.CorrelationID, ev.InputHash, data)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}

// Events implements [gate.Ledger].
func (l *Ledger) Events(ctx context.Context, f gate.EventFilter) ([]gate.Event, error) {
	var w where
	w.equal("execution_id", f.ExecutionID)
	w.equal("approval_id", f.ApprovalID)
	in(&w, "type", f.Types)
	events, err := list(ctx, l.s.read(ctx), scanAudit, `SELECT type, at, surface, actor_id, actor_kind, execution_id, approval_id,
		capability_id, correlation_id, input_hash, data FROM audit`+w.String()+` ORDER BY seq`+w.limit(f.Limit, defaultEvents), w.args...)
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return events, nil
}

func scanAudit(row dbutil.Scannable) (ev gate.Event, err error) {
	var at int64
	var data string
	err = row.Scan(&ev.Type, &at, &ev.Surface, &ev.Actor.ID, &ev.Actor.Kind, &ev.ExecutionID, &ev.ApprovalID,
		&ev.CapabilityID, &ev.CorrelationID, &ev.InputHash, &data)
	if err != nil {
		return ev, err
	}
	ev.At = fromMS(at)
	return ev, fromJSON(data, &ev.Data)
}
