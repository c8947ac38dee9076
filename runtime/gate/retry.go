package gate

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"

	"moothall/runtime/capability"
)

// retryBackoff is the default of [capability.Retry.Backoff], maxBackoff the
// longest wait between two attempts.
const (
	retryBackoff = 250 * time.Millisecond
	maxBackoff   = 5 * time.Minute
)

// attempts runs the handler until it succeeds, fails for good, or its declared
// retries are used up. All attempts are one execution under one key; each has a
// time-out of its own.
func (g *Gate) attempts(ctx context.Context, p *pass) (out json.RawMessage, n int, cerr *capability.Error) {
	for n = 1; ; n++ {
		out, cerr = g.attempt(ctx, p, n)
		if cerr == nil || !p.tool.retries(cerr, n) {
			return out, n, cerr
		}
		p.maybe = p.maybe || !cerr.NoEffect
		ev := g.event(EventRetried, p.e, g.now(), map[string]any{"attempt": n + 1, "previous_code": cerr.Code})
		if err := g.ledger.Record(ctx, ev); err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Str("execution_id", p.e.ID).Msg("Could not record a retry, so there is none")
			return nil, n, cerr
		}
		if !pause(ctx, backoff(p.tool.Meta.Retry.Backoff, n)) {
			return nil, n, cutShort(ctx)
		}
	}
}

func (g *Gate) attempt(ctx context.Context, p *pass, n int) (out json.RawMessage, cerr *capability.Error) {
	ctx, stop := withDeadline(ctx, orDefault(p.tool.Meta.Timeout, g.cfg.Timeout), errRunTimeout)
	defer stop()
	ctx, span := g.spanOf(ctx, SpanExecution, func() []Attr {
		return []Attr{{AttrCapability, p.e.CapabilityID}, {AttrExecution, p.e.ID}, {AttrAttempt, n}}
	})
	defer func() {
		if cerr != nil {
			span.set(Attr{AttrErrorCode, string(cerr.Code)})
		}
		span.end(cerr != nil)
	}()
	if ctx.Err() != nil {
		// The handler is not entered for somebody who has gone. If it never was,
		// nothing happened.
		cerr = cutShort(ctx)
		cerr.NoEffect = n == 1 && p.e.State == ExecStarted && !p.rerun
		return nil, cerr
	}
	if out, cerr = g.enter(ctx, p, n); cerr != nil {
		return nil, cerr
	}
	return p.accept(out)
}

// retries reports whether attempt n+1 may follow attempt n that ended in e.
func (t *tool) retries(e *capability.Error, n int) (again bool) {
	r := t.Meta.Retry
	if n > r.Max || !e.Retryable || e.Code == capability.CodeCancelled || e.Code == capability.CodeOutputInvalid {
		return false
	}
	if t.Meta.SideEffect.WriteLike() && !t.Meta.Idempotent {
		return false
	}
	if r.On == nil {
		return true
	}
	defer func() {
		if recover() != nil {
			again = false
		}
	}()
	return r.On(e)
}

// backoff is how long to wait after attempt n: base, doubled each time, of which
// the latter half is left to chance so that many callers do not come at once.
func backoff(base time.Duration, n int) time.Duration {
	d := orDefault(base, retryBackoff)
	for range n - 1 {
		if d >= maxBackoff/2 {
			d = maxBackoff
			break
		}
		d *= 2
	}
	return d/2 + rand.N(d/2+1) //nolint:gosec // chance spreads load here, it guards nothing
}

// pause waits for d and reports whether ctx let it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
