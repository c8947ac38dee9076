package gate

import (
	"context"
	"errors"
	"time"
)

// Sink takes audit events elsewhere: a file, a collector, another database. The
// ledger keeps its own rows; a sink sees the same events after their step was
// recorded, in order and one at a time. It must not change an event. A sink that
// fails, panics or hangs holds up neither the call nor another sink: what it
// cannot take is reported to [Audit.OnSinkError], and is not sent again.
type Sink interface {
	Write(ctx context.Context, ev Event) error
}

// Flusher is a [Sink] that keeps something back. [Gate.Drain] flushes it.
type Flusher interface {
	Flush(ctx context.Context) error
}

// LateSink is a [Sink] that says later whether it took an event. done must be
// called exactly once for each, from any goroutine.
type LateSink interface {
	WriteLate(ctx context.Context, ev Event, done func(error))
}

// Audit says where events go beside the ledger. The zero value: nowhere.
type Audit struct {
	Sinks []Sink
	// Strict: every sink must have taken the start of a run before the handler is
	// entered. If one has not within 10 s, nothing runs, the call is
	// [capability.CodeAuditUnavailable] and its approval is not used up. What is on
	// record as started may then not have been: that is the safe side.
	Strict bool
	// Verbose adds to an event what grows with the house: the ids of a listing.
	Verbose bool
	// OnSinkError is told every event that a sink did not take. It must be safe
	// for concurrent use. Nil: it is logged.
	OnSinkError func(err error, ev Event)
	// LedgerOnly says that the ledger's own rows are all that is wanted, which
	// ends the warning about it.
	LedgerOnly bool
}

func (a Audit) faults() []error {
	var out []error
	if a.Strict && len(a.Sinks) == 0 {
		out = append(out, errors.New("strict audit without a sink"))
	}
	for _, s := range a.Sinks {
		if s == nil {
			out = append(out, errors.New("an audit sink is nil"))
		}
	}
	return out
}

// audited is a ledger whose every event goes to the sinks once its step is
// recorded. The gate uses no other, so none can be forgotten.
type audited struct {
	Ledger
	trail *trail
	scope *scope
	now   func() time.Time
}

func (l audited) Claim(ctx context.Context, e Execution, ev Event) (Execution, bool, error) {
	have, fresh, err := l.Ledger.Claim(ctx, e, ev)
	if err == nil && fresh {
		l.trail.emit(ctx, l.scope, ev)
	}
	return have, fresh, err
}

func (l audited) Pend(ctx context.Context, p Pend) error {
	return l.after(ctx, l.Ledger.Pend(ctx, p), p.Event)
}

func (l audited) Cast(ctx context.Context, v Vote, ev Event) (Approval, error) {
	a, err := l.Ledger.Cast(ctx, v, ev)
	switch a.State {
	case ApprovalApproved:
		ev.Type = EventApproved
	case ApprovalRejected:
		ev.Type = EventRejected
	default:
		ev.Type = EventVoted
	}
	return a, l.after(ctx, err, ev)
}

func (l audited) Start(ctx context.Context, s Start) error {
	if !l.trail.strict {
		return l.after(ctx, l.Ledger.Start(ctx, s), s.Event)
	}
	if err := l.trail.take(ctx, l.scope, s.Event); err != nil {
		return err
	}
	s.At = l.now() // the sinks may have taken their time, and an approval its last
	return l.Ledger.Start(ctx, s)
}

func (l audited) Finish(ctx context.Context, f Finish) error {
	return l.after(ctx, l.Ledger.Finish(ctx, f), f.Event)
}

func (l audited) Close(ctx context.Context, c Close) (Approval, error) {
	a, err := l.Ledger.Close(ctx, c)
	return a, l.after(ctx, err, c.Event)
}

func (l audited) Settle(ctx context.Context, id string, s Settlement, ev Event) error {
	return l.after(ctx, l.Ledger.Settle(ctx, id, s, ev), ev)
}

func (l audited) Record(ctx context.Context, ev Event) error {
	return l.after(ctx, l.Ledger.Record(ctx, ev), ev)
}

func (l audited) after(ctx context.Context, err error, ev Event) error {
	if err == nil {
		l.trail.emit(ctx, l.scope, ev)
	}
	return err
}
