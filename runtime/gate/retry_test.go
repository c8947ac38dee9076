package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

func retryable() *capability.Error {
	e := capability.Failed("Busy.", true)
	e.Retryable = true
	return e
}

// failing is a handler that fails n times with err, then succeeds.
func failing(n int, err error) capability.Handler {
	return func(_ context.Context, _ *capability.Context, in json.RawMessage) (json.RawMessage, error) {
		clear(in) // the next attempt must not see this
		if n--; n >= 0 {
			return nil, err
		}
		return json.RawMessage(`1`), nil
	}
}

func TestR065Retries(t *testing.T) {
	tries := func(n int, also ...func(*capability.Meta)) func(*capability.Meta) {
		return func(m *capability.Meta) {
			m.SideEffect, m.Retry.Max = capability.SideEffectRead, n
			for _, f := range also {
				f(m)
			}
		}
	}
	on := func(f func(*capability.Error) bool) func(*capability.Meta) {
		return func(m *capability.Meta) { m.Retry.On = f }
	}
	write := func(m *capability.Meta) { m.SideEffect, m.Idempotent = capability.SideEffectWrite, true }
	for name, tt := range map[string]struct {
		meta   func(*capability.Meta)
		fails  int
		err    error
		status capability.Status
		runs   int
	}{
		"R065 the third time":        {tries(2), 2, retryable(), completed, 3},
		"R066 endless":               {tries(1), 100, retryable(), failed, 2},
		"R067 not retryable":         {tries(5), 1, capability.Failed("Broken.", true), failed, 1},
		"an undeclared error":        {tries(5), 1, errors.New("x"), failed, 1},
		"none declared":              {tries(0), 1, retryable(), failed, 1},
		"R069 an idempotent write":   {tries(1, write), 1, retryable(), completed, 2},
		"R070 a veto":                {tries(5, on(func(*capability.Error) bool { return false })), 1, retryable(), failed, 1},
		"R070 a veto by panic":       {tries(5, on(func(*capability.Error) bool { panic("x") })), 1, retryable(), failed, 1},
		"a nod":                      {tries(5, on(func(e *capability.Error) bool { return e.Public == "Busy." })), 1, retryable(), completed, 2},
		"a retryable CANCELLED":      {tries(5), 1, func() error { e := capability.Fail(capability.CodeCancelled); e.Retryable = true; return e }(), cancelled, 1},
		"a retryable OUTPUT_INVALID": {tries(5), 1, func() error { e := capability.Fail(capability.CodeOutputInvalid); e.Retryable = true; return e }(), failed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := one(t, gate.Config{Now: time.Now}, kit{meta: tt.meta, run: failing(tt.fails, tt.err)})
				res := w.invoke(call("k"))
				equal(t, "status", res.Status, tt.status)
				equal(t, "runs", w.runs(), tt.runs)
				equal(t, "what each was given", slices.Compact(w.inputs), []string{`{"who":"carol"}`})
				equal(t, "attempts", w.last().Data["attempts"], any(tt.runs))
				evs := w.events(gate.EventFilter{Types: []gate.EventType{gate.EventRetried}})
				equal(t, "retries on record", len(evs), tt.runs-1)
				for i, e := range evs {
					equal(t, "attempt", e.Data["attempt"], any(i+2))
					equal(t, "after", e.Data["previous_code"], any(capability.CodeExecutionFailed))
					equal(t, "execution", e.ExecutionID, res.ExecutionID)
				}
			})
		})
	}
}

func TestR071ATimedOutReadIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int32
		w := one(t, gate.Config{Now: time.Now}, kit{
			meta: func(m *capability.Meta) { read(m); m.Timeout, m.Retry.Max = time.Second, 1 },
			run: func(ctx context.Context, _ *capability.Context, _ json.RawMessage) (json.RawMessage, error) {
				if n.Add(1) == 1 {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				time.Sleep(999 * time.Millisecond) // its timer is its own
				return json.RawMessage(`1`), nil
			},
		})
		wants(t, w.invoke(call("k")), completed, "")
		evs := w.events(gate.EventFilter{Types: []gate.EventType{gate.EventRetried}})
		equal(t, "after", evs[0].Data["previous_code"], any(capability.CodeTimeout))
	})
}

func TestR073CancelledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := one(t, gate.Config{Now: time.Now}, kit{
			meta: func(m *capability.Meta) { read(m); m.Retry = capability.Retry{Max: 5, Backoff: time.Hour} }, run: failing(9, retryable()),
		})
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		res, err := w.Invoke(ctx, call("k"))
		if err != nil {
			t.Fatal(err)
		}
		wants(t, res, cancelled, capability.CodeCancelled)
		equal(t, "runs", w.runs(), 1)
		equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventRetried, gate.EventCancelled})
	})
}

func TestR074R077KeysOfAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		n := 0
		w := one(t, gate.Config{Now: time.Now}, kit{
			meta: func(m *capability.Meta) { read(m); m.Retry.Max = 1; gated(m) },
			run: func(_ context.Context, rt *capability.Context, _ json.RawMessage) (json.RawMessage, error) {
				keys = append(keys, rt.Call.IdempotencyKey)
				if n++; n%2 == 1 {
					return nil, retryable()
				}
				return json.RawMessage(`1`), nil
			},
		})
		id := w.approved()
		wants(t, w.resume(id, gate.ResumeOptions{}), completed, "")
		equal(t, "keys", keys, []string{"resume/" + id, "resume/" + id})
		equal(t, "one question", len(w.events(gate.EventFilter{Types: []gate.EventType{gate.EventApprovalRequested}})), 1)
	})
}

func TestR075Backoff(t *testing.T) {
	for _, base := range []time.Duration{0, time.Second} {
		for n := range 70 {
			full := base
			if full == 0 {
				full = 250 * time.Millisecond
			}
			for range n {
				full = min(2*full, 5*time.Minute)
			}
			if d := gate.Backoff(base, n+1); d < full/2 || d > full || d <= 0 {
				t.Errorf("base %s, attempt %d: %s; want %s to %s", base, n+1, d, full/2, full)
			}
		}
	}
}

// A retry that cannot be put on record does not happen.
func TestNoRecordNoRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := one(t, gate.Config{Now: time.Now}, kit{meta: func(m *capability.Meta) { read(m); m.Retry.Max = 1 }, run: failing(1, retryable())})
		w.ledger.fail["record"] = 1
		wants(t, w.invoke(call("k")), failed, capability.CodeExecutionFailed)
		equal(t, "runs", w.runs(), 1)
	})
}
