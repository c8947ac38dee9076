package storetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"moothall/bridge/queue"
	"moothall/store"
)

// A step that fails right before its commit has changed nothing, and works
// afterwards.
func faultsRollBack(t *testing.T, fresh Fresh) {
	t.Helper()
	cfg := fresh(t)
	var seen []string
	fail := ""
	cfg.Fault = func(step string) error {
		seen = append(seen, step)
		if step == fail {
			return errFault
		}
		return nil
	}
	s := open(t, cfg)
	r, g := s.Rows(), s.Ledger()
	now := start()
	ctx := t.Context()
	var seq int64
	id := func(table, key string) (n int64) { // rolled back rows may have used up numbers
		ok(t, s.Handle().QueryRow(ctx, `SELECT id FROM `+table+` WHERE key=$1`, key).Scan(&n))
		return n
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"accept", func() error { _, err := r.Accept(ctx, []queue.Event{event("$1", room)}, nil, now); return err }},
		{"lane_claim", func() error {
			l, found, err := r.Claim(ctx, queue.ClassRoom, "one", now, time.Minute)
			if !found {
				return err
			}
			e, _, err := r.NextEvent(queue.WithLease(ctx, l), now)
			seq = e.Seq
			return err
		}},
		{"retry_event", func() error { return r.RetryEvent(ctx, seq, now) }},
		{"route", func() error {
			return r.Route(ctx, seq, queue.Routed{Keep: true, Work: []queue.Work{row("k1", "a")}}, now)
		}},
		{"add_work", func() error { return r.AddWork(ctx, row("k2", "a")) }},
		{"retry_work", func() error { return r.RetryWork(ctx, id("work", "k1"), now, "why") }},
		{"done_work", func() error {
			return r.DoneWork(ctx, id("work", "k1"), []queue.Message{message("m1", room), message("m2", room)}, []queue.Work{row("k3", "a")}, now)
		}},
		{"drop_work", func() error {
			return r.DropWork(ctx, id("work", "k2"), "why", []queue.Message{message("m3", room)}, now)
		}},
		{"retry_message", func() error { return r.RetryMessage(ctx, id("outbox", "m1"), now) }},
		{"sent", func() error { return r.Sent(ctx, id("outbox", "m1"), "$sent", now) }},
		{"drop_message", func() error { return r.Drop(ctx, id("outbox", "m2"), "why", now) }},
		{"note_once", func() error { _, err := r.NoteOnce(ctx, "n1", now); return err }},
		{"set_note", func() error { return r.SetNote(ctx, "n2", "v") }},
		{"wipe", func() error { return r.Wipe(ctx, room, "$1") }},
		{"claim", func() error { _, _, err := g.Claim(ctx, execution("exe_1"), ev("exe_1", now)); return err }},
		{"pend", func() error { return g.Pend(ctx, pend("exe_1", "apr_1", 1, now.Add(time.Hour))) }},
		{"cast", func() error { _, err := g.Cast(ctx, vote("apr_1", bob, true, now), ev("", now)); return err }},
		{"claim", func() error { _, _, err := g.Claim(ctx, execution("exe_2"), ev("exe_2", now)); return err }},
		{"start", func() error { return g.Start(ctx, startOf("exe_2", "apr_1", now)) }},
		{"finish", func() error { f := finish("exe_2", now); f.To = "unknown"; return g.Finish(ctx, f) }},
		{"settle", func() error { return g.Settle(ctx, "exe_2", settlement(), ev("exe_2", now)) }},
		{"claim", func() error { _, _, err := g.Claim(ctx, execution("exe_3"), ev("exe_3", now)); return err }},
		{"pend", func() error { return g.Pend(ctx, pend("exe_3", "apr_3", 1, time.Time{})) }},
		{"close", func() error { _, err := g.Close(ctx, closing("apr_3", now)); return err }},
		{"record", func() error { return g.Record(ctx, ev("exe_1", now)) }},
		{"writable", func() error { return s.Writable(ctx) }},
	} {
		before := dump(t, s)
		fail, seen = step.name, nil
		if err := step.do(); !errors.Is(err, errFault) {
			t.Fatalf("%s: error %v; want the fault (steps %v)", step.name, err, seen)
		}
		equal(t, "database after a failed "+step.name, dump(t, s), before)
		fail = ""
		if err := step.do(); err != nil {
			t.Fatalf("%s after its fault: %v", step.name, err)
		}
		if step.name != "lane_claim" && dump(t, s) == before {
			t.Errorf("%s changed nothing", step.name)
		}
	}
}

func panicsRollBack(t *testing.T, fresh Fresh) {
	t.Helper()
	cfg := fresh(t)
	fail := true
	cfg.Fault = func(string) error {
		if fail {
			panic("here")
		}
		return nil
	}
	s := open(t, cfg)
	r := s.Rows()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic was swallowed")
			}
		}()
		_ = r.SetNote(t.Context(), "a", "b")
	}()
	fail = false
	v, err := r.Note(t.Context(), "a")
	ok(t, err)
	equal(t, "value", v, "")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ok(t, r.SetNote(ctx, "a", "b")) // the database is not locked
}

func transactionsCanBeLeft(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	errBack := errors.New("back")
	err := s.Handle().DoTxn(t.Context(), nil, func(ctx context.Context) error {
		ok(t, s.Rows().SetNote(ctx, "in", "txn"))
		v, err := s.Rows().Note(ctx, "in")
		ok(t, err)
		equal(t, "inside", v, "txn")
		// A reader in another goroutine, as a handler would be.
		var wg sync.WaitGroup
		wg.Go(func() { v, err = s.Rows().Note(store.WithoutTxn(ctx), "in") })
		wg.Wait()
		ok(t, err)
		equal(t, "outside", v, "")
		return errBack
	})
	is(t, err, errBack)
	v, err := s.Rows().Note(t.Context(), "in")
	ok(t, err)
	equal(t, "after", v, "")
	type key struct{}
	lease := queue.WithLease(context.WithValue(t.Context(), key{}, "kept"), queue.Lease{Key: "a"})
	out := store.WithoutTxn(lease)
	equal(t, "other values", out.Value(key{}), any("kept"))
	if _, found := queue.LeaseFrom(out); !found {
		t.Error("the lease was lost")
	}
}

func reopening(t *testing.T, fresh Fresh) {
	t.Helper()
	cfg := fresh(t)
	s := open(t, cfg)
	now := start()
	_, err := s.Rows().Accept(t.Context(), []queue.Event{event("$1", room)}, nil, now)
	ok(t, err)
	mustApprove(t, s.Ledger(), "apr_1", time.Time{})
	lost, _ := claim(t, s.Rows(), queue.ClassRoom, now)
	before := dump(t, s)
	ok(t, s.Close())

	s = open(t, cfg)
	equal(t, "database", dump(t, s), before)
	noClaim(t, s.Rows(), queue.ClassRoom, now)
	ok(t, s.Rows().ReleaseAll(t.Context()))
	ctx, _ := claim(t, s.Rows(), queue.ClassRoom, now)
	e, _, err := s.Rows().NextEvent(ctx, now)
	ok(t, err)
	equal(t, "event", e.ID, "$1")
	is(t, s.Rows().Route(lost, e.Seq, queue.Routed{}, now), queue.ErrFenced)
}

// A caller that goes away before the step leaves nothing; none leaves half.
func cancelledCallers(t *testing.T, fresh Fresh) {
	t.Helper()
	cfg := fresh(t)
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Fault = func(string) error { cancel(); return nil }
	s := open(t, cfg)
	ok(t, s.Rows().SetNote(ctx, "a", "b")) // cancelled half way: done all the same
	is(t, s.Rows().SetNote(ctx, "c", "d"), context.Canceled)
	v, err := s.Rows().Note(t.Context(), "a")
	ok(t, err)
	equal(t, "value", v, "b")
	v, err = s.Rows().Note(t.Context(), "c")
	ok(t, err)
	equal(t, "value", v, "")
}

func readOnlyStore(t *testing.T, fresh Fresh) {
	t.Helper()
	cfg := fresh(t)
	reader := cfg
	reader.ReadOnly = true
	s := open(t, cfg)
	ok(t, s.Rows().SetNote(t.Context(), "a", "b"))
	beside := open(t, reader) // beside a running process
	v, err := beside.Rows().Note(t.Context(), "a")
	ok(t, err)
	equal(t, "value", v, "b")
	if err := beside.Rows().SetNote(t.Context(), "a", "c"); err == nil {
		t.Error("a read-only store wrote")
	}
	if _, err := beside.Handle().Exec(t.Context(), `DELETE FROM note`); err == nil {
		t.Error("a read-only store wrote")
	}
	ok(t, store.Check(t.Context(), cfg))
	ok(t, beside.Close())
	ok(t, s.Close())
	alone := open(t, reader)
	v, err = alone.Rows().Note(t.Context(), "a")
	ok(t, err)
	equal(t, "value", v, "b")
}

func writableAndStats(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	ok(t, s.Writable(t.Context()))
	ok(t, s.Writable(t.Context()))
	_, err := s.Rows().Accept(t.Context(), []queue.Event{event("$1", room)}, nil, start())
	ok(t, err)
	mustPend(t, s.Ledger(), "apr_1", 1, time.Time{})
	claim(t, s.Rows(), queue.ClassRoom, start())
	st, err := s.Stats(t.Context())
	ok(t, err)
	equal(t, "stats", st, store.Stats{SchemaVersion: store.Latest(), Inbox: 1, Work: 1, Held: 1, OpenApprovals: 1})
	people, err := s.Identities(t.Context(), alice)
	ok(t, err)
	equal(t, "identities", people, []string{alice})
}
