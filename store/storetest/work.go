package storetest

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"moothall/bridge/queue"
)

func workKeysAreUnique(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	w := row("k1", "a")
	w.Data = json.RawMessage(`{"n":1}`)
	ok(t, r.AddWork(t.Context(), w, row("k2", "b")))
	again := row("k1", "elsewhere")
	ok(t, r.AddWork(t.Context(), again, row("k1", "a"), row("k3", "c")))
	ok(t, r.AddWork(t.Context()))
	got := work(t, r, queue.ClassThread, now)
	equal(t, "rows", len(got), 3)
	for _, g := range got {
		if g.Key == "k1" {
			w.ID = g.ID
			equal(t, "row", g, w)
		}
	}
	ok(t, r.AddWork(t.Context(), w)) // also after it is done
	noClaim(t, r, queue.ClassThread, now)
	if err := r.AddWork(t.Context(), queue.Work{Key: "k", Class: queue.ClassRoom, Lane: "a"}); err == nil {
		t.Fatal("a room holds no work")
	}
}

func workOrderAndHeadOfLine(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	late := row("k1", "a")
	late.NotBefore = now.Add(time.Minute)
	ok(t, r.AddWork(t.Context(), late))
	ok(t, r.AddWork(t.Context(), row("k2", "a")))
	ctx, l := claim(t, r, queue.ClassThread, now) // the second row made it due
	_, found, err := r.NextWork(ctx, now)
	ok(t, err)
	equal(t, "the second before the first", found, false)
	ok(t, r.Release(ctx, l))
	noClaim(t, r, queue.ClassThread, now) // and now it waits for the first
	equal(t, "order", keys(work(t, r, queue.ClassThread, now.Add(time.Minute))), []string{"k1", "k2"})

	// The same name in another class is another lane.
	ok(t, r.AddWork(t.Context(), queue.Work{Key: "c", Class: queue.ClassControl, Lane: "a", Kind: queue.KindShow, Ref: "apr"}))
	noClaim(t, r, queue.ClassThread, now.Add(time.Hour))
	got := work(t, r, queue.ClassControl, now)
	equal(t, "control", keys(got), []string{"c"})
	equal(t, "created by the store's clock", got[0].Created, start())
}

func workDoneAndDropped(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	ok(t, r.AddWork(t.Context(), row("k1", "a"), row("k2", "a")))
	ctx, l := claim(t, r, queue.ClassThread, now)
	w, _, err := r.NextWork(ctx, now)
	ok(t, err)
	ok(t, r.RetryWork(ctx, w.ID, now, "busy"))
	w, _, err = r.NextWork(ctx, now)
	ok(t, err)
	equal(t, "attempts", w.Attempts, 1)
	out := []queue.Message{{Key: "m1", Room: room, Part: queue.PartMessage, Content: json.RawMessage(`{"body":"done"}`)}}
	for range 2 { // a repeat adds nothing
		ok(t, r.DoneWork(ctx, w.ID, out, []queue.Work{row("k3", "a")}, now))
		out = append(out, queue.Message{Key: "m9", Room: room, Part: queue.PartMessage})
	}
	w, _, err = r.NextWork(ctx, now)
	ok(t, err)
	equal(t, "key", w.Key, "k2")
	ok(t, r.DropWork(ctx, w.ID, "broken", []queue.Message{{Key: "m2", Room: room, Part: queue.PartMessage}}, now))
	ok(t, r.DropWork(ctx, w.ID, "broken", out, now))
	w, _, err = r.NextWork(ctx, now)
	ok(t, err)
	equal(t, "key", w.Key, "k3")
	ok(t, r.Release(ctx, l))

	for _, key := range []string{"m1", "m2"} {
		_, err := r.MessageByKey(t.Context(), key)
		ok(t, err)
	}
	_, err = r.MessageByKey(t.Context(), "m9")
	is(t, err, queue.ErrNotFound)
	is(t, r.DoneWork(t.Context(), 999, nil, nil, now), queue.ErrNotFound)
	is(t, r.RetryWork(t.Context(), 999, now, ""), queue.ErrNotFound)
	is(t, r.DropWork(t.Context(), 999, "", nil, now), queue.ErrNotFound)
}

// Many writers add the same keys to lanes that lie across: one row each, and no
// writer fails for another's lock.
func workConcurrentKeys(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	const lanes = 10
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for round := range 5 {
				var rows []queue.Work
				for j := range lanes {
					j = (j*7 + i) % lanes
					rows = append(rows, row(fmt.Sprintf("k/%d/%d", round, j), fmt.Sprintf("lane%d", j)))
				}
				if err := r.AddWork(t.Context(), rows...); err != nil {
					t.Errorf("add: %v", err)
				}
			}
		})
	}
	wg.Wait()
	equal(t, "rows", len(work(t, r, queue.ClassThread, start())), 5*lanes)
}

func notes(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	v, err := r.Note(t.Context(), "sync")
	ok(t, err)
	equal(t, "value", v, "")
	ok(t, r.SetNote(t.Context(), "sync", "one"))
	ok(t, r.SetNote(t.Context(), "sync", "two"))
	v, err = r.Note(t.Context(), "sync")
	ok(t, err)
	equal(t, "value", v, "two")
	for _, want := range []bool{true, false} {
		once, err := r.NoteOnce(t.Context(), "told/"+alice, start())
		ok(t, err)
		equal(t, "fresh", once, want)
	}
	once, err := r.NoteOnce(t.Context(), "sync", start())
	ok(t, err)
	equal(t, "fresh", once, false)
	v, err = r.Note(t.Context(), "sync")
	ok(t, err)
	equal(t, "value", v, "two")
}
