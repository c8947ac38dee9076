package gate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/gate"
)

// pages is a sink that takes several events at once.
type pages struct {
	mu   sync.Mutex
	list [][]gate.EventType
	err  error
}

func (p *pages) Write(ctx context.Context, ev gate.Event) error {
	return p.WriteBatch(ctx, []gate.Event{ev})
}

func (p *pages) WriteBatch(_ context.Context, evs []gate.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	var page []gate.EventType
	for _, ev := range evs {
		page = append(page, ev.Type)
	}
	p.list = append(p.list, page)
	return nil
}

func TestR184Batch(t *testing.T) {
	send := func(b *gate.Batch, types ...gate.EventType) (errs []error) {
		for _, et := range types {
			b.WriteLate(t.Context(), gate.Event{Type: et}, func(err error) { errs = append(errs, err) })
		}
		return errs
	}
	t.Run("by size, in order", func(t *testing.T) {
		p := &pages{}
		b := gate.NewBatch(p, gate.BatchConfig{Size: 2, Every: time.Hour})
		send(b, gate.EventRequested, gate.EventDenied, gate.EventRequested)
		equal(t, "pages", p.list, [][]gate.EventType{{gate.EventRequested, gate.EventDenied}})
		if err := b.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "pages", len(p.list), 2)
	})
	t.Run("by time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := &pages{}
			b := gate.NewBatch(p, gate.BatchConfig{})
			begun := time.Now()
			if err := b.Write(t.Context(), gate.Event{Type: gate.EventRequested}); err != nil {
				t.Fatal(err)
			}
			equal(t, "took", time.Since(begun), 250*time.Millisecond)
			equal(t, "pages", len(p.list), 1)
		})
	})
	t.Run("a start waits for nothing", func(t *testing.T) {
		p := &pages{}
		b := gate.NewBatch(p, gate.BatchConfig{Every: time.Hour})
		send(b, gate.EventRequested, gate.EventStarted)
		equal(t, "pages", p.list, [][]gate.EventType{{gate.EventRequested, gate.EventStarted}})
	})
	t.Run("closed, it writes through", func(t *testing.T) {
		p := &pages{}
		b := gate.NewBatch(p, gate.BatchConfig{Every: time.Hour})
		send(b, gate.EventRequested)
		if err := b.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		send(b, gate.EventDenied)
		equal(t, "pages", p.list, [][]gate.EventType{{gate.EventRequested}, {gate.EventDenied}})
	})
	t.Run("a failure is that of each event", func(t *testing.T) {
		p, told := &pages{err: errFault}, &failures{}
		w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{gate.NewBatch(p, gate.BatchConfig{Every: time.Hour})}, OnSinkError: told.add}}, kit{})
		wants(t, w.invoke(call("k")), completed, "")
		if err := w.drain(); !errors.Is(err, errFault) {
			t.Fatalf("drain: %v", err)
		}
		equal(t, "told", told.list(), []string{"capability.requested: fault", "capability.started: fault", "capability.completed: fault"})
	})
	t.Run("one by one where the sink takes one", func(t *testing.T) {
		s := &sink{f: func(ev gate.Event) error {
			if ev.Type == gate.EventDenied {
				return errFault
			}
			return nil
		}}
		b := gate.NewBatch(s, gate.BatchConfig{Size: 3})
		errs := send(b, gate.EventRequested, gate.EventDenied, gate.EventRequested)
		equal(t, "errors", []bool{errs[0] == nil, errs[1] == nil, errs[2] == nil}, []bool{true, false, true})
		equal(t, "written", len(s.evs), 2)
	})
}
