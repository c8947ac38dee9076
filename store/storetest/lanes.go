package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"moothall/bridge/queue"
	"moothall/store"
)

func laneClaimTakesTheLongestDue(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	noClaim(t, r, queue.ClassThread, now)
	for i, lane := range []string{"c", "a", "b"} {
		w := row("k"+lane, lane)
		w.Created = now.Add(-time.Duration(i) * time.Second)
		ok(t, r.AddWork(t.Context(), w))
	}
	later := row("later", "z")
	later.NotBefore = now.Add(time.Hour)
	ok(t, r.AddWork(t.Context(), later))
	for _, want := range []string{"b", "a", "c"} {
		_, l := claim(t, r, queue.ClassThread, now)
		equal(t, "lane", l.Key, want)
		equal(t, "until", l.Until, now.Add(time.Minute))
	}
	noClaim(t, r, queue.ClassThread, now)
	noClaim(t, r, queue.ClassControl, now)
	_, l := claim(t, r, queue.ClassThread, now.Add(30*time.Second).Add(time.Hour-30*time.Second))
	if l.Key == "" {
		t.Fatal("no lane")
	}
}

func laneIsHeldByOne(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	ok(t, r.AddWork(t.Context(), row("k", "a")))
	_, first := claim(t, r, queue.ClassThread, now)
	ok(t, r.AddWork(t.Context(), row("k2", "a")))
	noClaim(t, r, queue.ClassThread, now.Add(time.Minute-time.Millisecond))
	// At equality the lease has ended.
	_, second := claim(t, r, queue.ClassThread, now.Add(time.Minute))
	equal(t, "lane", second.Key, "a")
	if second.Epoch <= first.Epoch {
		t.Fatalf("epoch %d after %d", second.Epoch, first.Epoch)
	}
	// The one who lost it can neither renew it nor give it away.
	_, err := r.Renew(t.Context(), first, now, time.Minute)
	is(t, err, queue.ErrFenced)
	ok(t, r.Release(t.Context(), first))
	noClaim(t, r, queue.ClassThread, now.Add(time.Minute))
}

func laneEpochsGrow(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	ok(t, r.AddWork(t.Context(), row("k", "a")))
	last := int64(0)
	for i := range 5 {
		ctx, l := claim(t, r, queue.ClassThread, start())
		if l.Epoch <= last {
			t.Fatalf("epoch %d after %d", l.Epoch, last)
		}
		last = l.Epoch
		if i%2 == 0 {
			ok(t, r.Release(ctx, l))
		} else {
			ok(t, r.ReleaseAll(t.Context()))
		}
	}
}

func laneRenew(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	ok(t, r.AddWork(t.Context(), row("k", "a")))
	ctx, l := claim(t, r, queue.ClassThread, now)
	l, err := r.Renew(ctx, l, now.Add(50*time.Second), time.Minute)
	ok(t, err)
	equal(t, "until", l.Until, now.Add(110*time.Second))
	noClaim(t, r, queue.ClassThread, now.Add(109*time.Second))
	ok(t, r.Release(ctx, l))
	_, err = r.Renew(t.Context(), l, now, time.Minute)
	is(t, err, queue.ErrFenced)
}

func laneReleaseFindsTheNextRow(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	ok(t, r.AddWork(t.Context(), row("k1", "a"), row("k2", "a")))
	ctx, l := claim(t, r, queue.ClassThread, now)
	w, _, err := r.NextWork(ctx, now)
	ok(t, err)
	ok(t, r.DoneWork(ctx, w.ID, nil, nil, now))
	ok(t, r.Release(ctx, l))

	ctx, l = claim(t, r, queue.ClassThread, now)
	w, _, err = r.NextWork(ctx, now)
	ok(t, err)
	equal(t, "key", w.Key, "k2")
	ok(t, r.RetryWork(ctx, w.ID, now.Add(time.Minute), "later"))
	ok(t, r.Release(ctx, l))
	noClaim(t, r, queue.ClassThread, now.Add(time.Minute-time.Millisecond))

	ctx, l = claim(t, r, queue.ClassThread, now.Add(time.Minute))
	ok(t, r.DoneWork(ctx, w.ID, nil, nil, now))
	ok(t, r.Release(ctx, l))
	noClaim(t, r, queue.ClassThread, now.Add(time.Hour))
	_, due, err := r.NextDue(t.Context(), queue.ClassThread)
	ok(t, err)
	equal(t, "due", due, false)

	// A released room and a released outbox look at their own rows.
	_, err = r.Accept(t.Context(), []queue.Event{event("$1", room)}, nil, now)
	ok(t, err)
	ctx, l = claim(t, r, queue.ClassRoom, now)
	e, _, err := r.NextEvent(ctx, now)
	ok(t, err)
	ok(t, r.RetryEvent(ctx, e.Seq, now.Add(time.Second)))
	ok(t, r.Release(ctx, l))
	noClaim(t, r, queue.ClassRoom, now)
	ctx, l = claim(t, r, queue.ClassRoom, now.Add(time.Second))
	ok(t, r.Route(ctx, e.Seq, queue.Routed{}, now))
	ok(t, r.Release(ctx, l))
	noClaim(t, r, queue.ClassRoom, now.Add(time.Hour))
}

func laneReleaseAll(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	ok(t, r.AddWork(t.Context(), row("k1", "a"), row("k2", "b")))
	ctx, first := claim(t, r, queue.ClassThread, now)
	claim(t, r, queue.ClassThread, now)
	noClaim(t, r, queue.ClassThread, now)
	ok(t, r.ReleaseAll(t.Context()))
	is(t, r.SetNote(ctx, "a", "b"), queue.ErrFenced)
	claim(t, r, queue.ClassThread, now)
	claim(t, r, queue.ClassThread, now)
	is(t, r.SetNote(ctx, "a", "b"), queue.ErrFenced)
	_, err := r.Renew(t.Context(), first, now, time.Minute)
	is(t, err, queue.ErrFenced)
}

func laneNextDue(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	_, found, err := r.NextDue(t.Context(), queue.ClassThread)
	ok(t, err)
	equal(t, "found", found, false)

	later := row("k1", "a")
	later.NotBefore = now.Add(time.Hour)
	ok(t, r.AddWork(t.Context(), later))
	due, found, err := r.NextDue(t.Context(), queue.ClassThread)
	ok(t, err)
	equal(t, "found", found, true)
	equal(t, "due", due, now.Add(time.Hour))

	ok(t, r.AddWork(t.Context(), row("k2", "b")))
	due, _, err = r.NextDue(t.Context(), queue.ClassThread)
	ok(t, err)
	equal(t, "due", due, now)

	// A held lane counts from the end of its lease.
	claim(t, r, queue.ClassThread, now)
	due, _, err = r.NextDue(t.Context(), queue.ClassThread)
	ok(t, err)
	equal(t, "due", due, now.Add(time.Minute))
}

// Rows are added while the lane is claimed and released over and over; whatever
// the order of the commits, every row is found.
func laneNoWakeUpIsLost(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	const writers, each = 4, 40
	now := start()
	var adding sync.WaitGroup
	for i := range writers {
		adding.Go(func() {
			for j := range each {
				if err := r.AddWork(t.Context(), row(fmt.Sprintf("k/%d/%d", i, j), "a")); err != nil {
					t.Errorf("add: %v", err)
				}
			}
		})
	}
	var done atomic.Bool
	go func() { adding.Wait(); done.Store(true) }()
	got := 0
	for {
		last := done.Load() // before the look: what is added afterwards is not missed
		n := len(work(t, r, queue.ClassThread, now))
		got += n
		if last && n == 0 {
			break
		}
	}
	equal(t, "rows found", got, writers*each)
}

func laneClaimsNeverCollide(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	const lanes = 40
	for i := range lanes {
		ok(t, r.AddWork(t.Context(), row(fmt.Sprintf("k%d", i), fmt.Sprintf("lane%d", i))))
	}
	var mu sync.Mutex
	seen := map[string]int{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for misses := 0; misses < 3; {
				l, found, err := r.Claim(t.Context(), queue.ClassThread, "one", start(), time.Minute)
				if err != nil {
					t.Errorf("claim: %v", err)
					return
				}
				if !found {
					misses++ // another may hold the row that was looked at
					continue
				}
				mu.Lock()
				seen[l.Key]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	equal(t, "lanes claimed", len(seen), lanes)
	for key, n := range seen {
		if n != 1 {
			t.Errorf("lane %s was claimed %d times", key, n)
		}
	}
}

func laneWake(t *testing.T, fresh Fresh) {
	t.Helper()
	cfg := fresh(t)
	var mu sync.Mutex
	woken := map[queue.Class]int{}
	cfg.Wake = func(c queue.Class) { mu.Lock(); woken[c]++; mu.Unlock() }
	cfg.Notify = true
	fail := false
	cfg.Fault = func(string) error {
		if fail {
			return errFault
		}
		return nil
	}
	r := open(t, cfg).Rows()
	take := func() map[queue.Class]int {
		mu.Lock()
		defer mu.Unlock()
		w := woken
		woken = map[queue.Class]int{}
		return w
	}
	_, err := r.Accept(t.Context(), []queue.Event{event("$1", room), event("$2", other)}, nil, start())
	ok(t, err)
	equal(t, "woken", take(), map[queue.Class]int{queue.ClassRoom: 1})
	_, err = r.Accept(t.Context(), []queue.Event{event("$1", room)}, nil, start())
	ok(t, err)
	equal(t, "woken by a repeat", take(), map[queue.Class]int{})
	fail = true
	is(t, r.AddWork(t.Context(), row("k", "a")), errFault)
	equal(t, "woken by a failure", take(), map[queue.Class]int{})
	fail = false
	ok(t, r.AddWork(t.Context(), row("k", "a"), row("k2", "b")))
	equal(t, "woken", take(), map[queue.Class]int{queue.ClassThread: 1})
	ctx, l := claim(t, r, queue.ClassThread, start())
	equal(t, "woken by a claim", take(), map[queue.Class]int{})
	ok(t, r.Release(ctx, l))
	equal(t, "woken by what is left", take(), map[queue.Class]int{queue.ClassThread: 1})
}

// Under a lease that was lost no write does anything.
func fencedWritesChangeNothing(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
	now := start()
	claimed := mustClaim(t, g, execution("exe_1"), now)
	waiting := mustPend(t, g, "apr_1", 2, now.Add(time.Hour))
	_, err := r.Accept(t.Context(), []queue.Event{event("$1", room)}, nil, now)
	ok(t, err)
	ok(t, r.AddWork(t.Context(), row("k1", "lost")))
	first, _ := claim(t, r, queue.ClassThread, now)
	w, _, err := r.NextWork(first, now)
	ok(t, err)
	ok(t, r.DoneWork(first, w.ID, []queue.Message{{Key: "m1", Room: room, Part: queue.PartCard}}, []queue.Work{row("k2", "lost")}, now))
	m, err := r.MessageByKey(t.Context(), "m1")
	ok(t, err)
	second, _ := claim(t, r, queue.ClassThread, now.Add(2*time.Minute)) // the lane is lost to another
	w, _, err = r.NextWork(second, now)
	ok(t, err)

	before := dump(t, s)
	for name, write := range map[string]func() error{
		"accept":        func() error { _, err := r.Accept(first, []queue.Event{event("$2", room)}, nil, now); return err },
		"route":         func() error { return r.Route(first, 1, queue.Routed{}, now) },
		"retry event":   func() error { return r.RetryEvent(first, 1, now) },
		"wipe":          func() error { return r.Wipe(first, room, "$1") },
		"add work":      func() error { return r.AddWork(first, row("k3", "a")) },
		"done work":     func() error { return r.DoneWork(first, w.ID, nil, nil, now) },
		"retry work":    func() error { return r.RetryWork(first, w.ID, now, "why") },
		"drop work":     func() error { return r.DropWork(first, w.ID, "why", nil, now) },
		"sent":          func() error { return r.Sent(first, m.ID, "$sent", now) },
		"retry message": func() error { return r.RetryMessage(first, m.ID, now) },
		"drop message":  func() error { return r.Drop(first, m.ID, "why", now) },
		"note once":     func() error { _, err := r.NoteOnce(first, "n", now); return err },
		"set note":      func() error { return r.SetNote(first, "n", "v") },
		"claim":         func() error { _, _, err := g.Claim(first, execution("exe_2"), ev("exe_2", now)); return err },
		"pend":          func() error { return g.Pend(first, pend(claimed.ID, "apr_2", 1, now)) },
		"cast":          func() error { _, err := g.Cast(first, vote(waiting.ID, bob, true, now), ev("", now)); return err },
		"start":         func() error { return g.Start(first, startOf(claimed.ID, "", now)) },
		"finish":        func() error { return g.Finish(first, finish(claimed.ID, now)) },
		"close":         func() error { _, err := g.Close(first, closing(waiting.ID, now)); return err },
		"record":        func() error { return g.Record(first, ev("exe_1", now)) },
	} {
		if err := write(); !isFenced(err) {
			t.Errorf("%s under a lost lease: %v", name, err)
		}
	}
	equal(t, "database", dump(t, s), before)
	ok(t, r.DoneWork(second, w.ID, nil, nil, now)) // the one who has it writes
}

var _ queue.Rows = (*store.Rows)(nil)

// Workers that each hold a lane and give work to each other's never wait for
// each other in a circle.
func lanesMayCross(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	const lanes, rounds = 6, 15
	now := start()
	for i := range lanes {
		ok(t, r.AddWork(t.Context(), row(fmt.Sprintf("k/%d/0", i), fmt.Sprintf("lane%d", i))))
	}
	var leases []queue.Lease // all before the first works: a lane that is being written to is passed over
	for range lanes {
		_, l := claim(t, r, queue.ClassThread, now)
		leases = append(leases, l)
	}
	var wg sync.WaitGroup
	for _, l := range leases {
		ctx := queue.WithLease(t.Context(), l)
		wg.Go(func() {
			for n := range rounds {
				var more []queue.Work
				for i := range lanes {
					more = append(more, row(fmt.Sprintf("k/%s/%d/%d", l.Key, n, i), fmt.Sprintf("lane%d", (i*5)%lanes)))
				}
				w, found, err := r.NextWork(ctx, now)
				if err != nil || !found {
					t.Errorf("lane %s: found %t, error %v", l.Key, found, err)
					return
				}
				if err := r.DoneWork(ctx, w.ID, nil, more, now); err != nil {
					t.Errorf("lane %s: %v", l.Key, err)
					return
				}
			}
		})
	}
	began := time.Now()
	wg.Wait()
	// PostgreSQL breaks a deadlock after a second; without one this is far quicker.
	t.Logf("%d steps took %v", lanes*rounds, time.Since(began))
}
