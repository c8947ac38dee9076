package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"moothall/bridge/queue"
	"moothall/store"
)

func message(key, inRoom string) queue.Message {
	return queue.Message{
		Key: key, Room: inRoom, Root: "$root", Part: queue.PartMessage, Ref: "exe_1",
		Content: json.RawMessage(`{"body":"<hi>"}`), Created: start(),
	}
}

// say puts messages into the outbox, by way of a work row.
func say(t *testing.T, r *store.Rows, out ...queue.Message) {
	t.Helper()
	first := out[0]
	ok(t, r.AddWork(t.Context(), row("say/"+first.Key+"@"+first.Room, "say")))
	ctx, l := claim(t, r, queue.ClassThread, start())
	w, _, err := r.NextWork(ctx, start())
	ok(t, err)
	ok(t, r.DoneWork(ctx, w.ID, out, nil, start()))
	ok(t, r.Release(ctx, l))
}

func outboxOrder(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	say(t, r, message("m1", room), message("m2", room), message("x1", other))
	say(t, r, message("m1", other), message("m3", room))
	for range 2 {
		ctx, l := claim(t, r, queue.ClassOutbox, now)
		want := []string{"m1", "m2", "m3"}
		if l.Key == other {
			want = []string{"x1"}
		}
		for _, key := range want {
			m, found, err := r.NextMessage(ctx, now)
			ok(t, err)
			equal(t, "found", found, true)
			equal(t, "key", m.Key, key)
			ok(t, r.Sent(ctx, m.ID, "$sent-"+key, now))
		}
		_, found, err := r.NextMessage(ctx, now)
		ok(t, err)
		equal(t, "found", found, false)
		ok(t, r.Release(ctx, l))
	}
	noClaim(t, r, queue.ClassOutbox, now.Add(time.Hour))
	_, _, err := r.NextMessage(t.Context(), now)
	if err == nil {
		t.Fatal("without a lease there is no lane")
	}
}

func outboxWaitsForAnother(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	waits := func(key, inRoom, target string) queue.Message {
		m := message(key, inRoom)
		m.Part, m.WaitsFor = queue.PartReact, target
		return m
	}
	say(t, r, message("card", room), waits("yes", room, "card"), message("lost", room), waits("no", room, "lost"),
		waits("after", room, "no"), waits("orphan", room, "never"), waits("far", other, "last"), message("last", room))

	// Another room's row that is not sent yet: the room waits and is not due at once.
	ctx, l := claimRoom(t, r, other, now)
	_, found, err := r.NextMessage(ctx, now)
	ok(t, err)
	equal(t, "found", found, false)
	ok(t, r.Release(ctx, l))

	ctx, l = claimRoom(t, r, room, now)
	m, _, err := r.NextMessage(ctx, now)
	ok(t, err)
	equal(t, "key", m.Key, "card")
	equal(t, "target", m.Target, "")
	ok(t, r.Sent(ctx, m.ID, "$card", now))
	m, _, err = r.NextMessage(ctx, now)
	ok(t, err)
	equal(t, "key", m.Key, "yes")
	equal(t, "target", m.Target, "$card")
	ok(t, r.Sent(ctx, m.ID, "$yes", now))
	m, _, err = r.NextMessage(ctx, now)
	ok(t, err)
	ok(t, r.Drop(ctx, m.ID, "forbidden", now))
	m, _, err = r.NextMessage(ctx, now) // no, after and orphan fall with what they wait for
	ok(t, err)
	equal(t, "key", m.Key, "last")
	ok(t, r.Sent(ctx, m.ID, "$last", now))
	ok(t, r.Release(ctx, l))
	noClaim(t, r, queue.ClassOutbox, now)

	ctx, _ = claimRoom(t, r, other, now.Add(time.Minute))
	m, _, err = r.NextMessage(ctx, now.Add(time.Minute))
	ok(t, err)
	equal(t, "key", m.Key, "far")
	equal(t, "target", m.Target, "$last")
}

func outboxFirstTryAndRetry(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	say(t, r, message("m1", room), message("m2", room))
	ctx, l := claim(t, r, queue.ClassOutbox, now)
	m, _, err := r.NextMessage(ctx, now)
	ok(t, err)
	want := message("m1", room)
	want.ID, want.FirstTry = m.ID, now
	equal(t, "message", m, want)
	stored, err := r.MessageByKey(t.Context(), "m1")
	ok(t, err)
	equal(t, "recorded first try", stored.FirstTry, now)
	ok(t, r.RetryMessage(ctx, m.ID, now.Add(time.Minute)))
	_, found, err := r.NextMessage(ctx, now)
	ok(t, err)
	equal(t, "the second before the first", found, false)
	ok(t, r.Release(ctx, l))
	noClaim(t, r, queue.ClassOutbox, now)
	ctx, _ = claim(t, r, queue.ClassOutbox, now.Add(time.Minute))
	m, _, err = r.NextMessage(ctx, now.Add(time.Minute))
	ok(t, err)
	equal(t, "first try", m.FirstTry, now)
	equal(t, "attempts", m.Attempts, 1)
}

func outboxEndsAndLookups(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	say(t, r, message("m1", room), message("m2", room))
	m1, err := r.MessageByKey(t.Context(), "m1")
	ok(t, err)
	m2, err := r.MessageByKey(t.Context(), "m2")
	ok(t, err)
	ok(t, r.Sent(t.Context(), m1.ID, "$1", now))
	ok(t, r.Sent(t.Context(), m1.ID, "$other", now)) // a repeat changes nothing
	ok(t, r.Drop(t.Context(), m1.ID, "late", now))
	ok(t, r.Drop(t.Context(), m2.ID, "why", now))
	ok(t, r.Sent(t.Context(), m2.ID, "$2", now))
	got, err := r.MessageByEvent(t.Context(), room, "$1")
	ok(t, err)
	equal(t, "key", got.Key, "m1")
	for _, event := range []string{"$other", "$2", ""} {
		_, err = r.MessageByEvent(t.Context(), room, event)
		is(t, err, queue.ErrNotFound)
	}
	_, err = r.MessageByEvent(t.Context(), other, "$1")
	is(t, err, queue.ErrNotFound)
	is(t, r.Sent(t.Context(), 999, "$x", now), queue.ErrNotFound)
	is(t, r.RetryMessage(t.Context(), 999, now), queue.ErrNotFound)
	is(t, r.Drop(t.Context(), 999, "", now), queue.ErrNotFound)
}

func outboxCardsBegun(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	begun := func(want bool, since time.Time) {
		t.Helper()
		got, err := r.CardsBegun(t.Context(), room, since)
		ok(t, err)
		equal(t, "cards begun", got, want)
	}
	card := message("card", room)
	card.Part = queue.PartCard
	elsewhere := message("card2", other)
	elsewhere.Part = queue.PartCard
	say(t, r, message("m", room), elsewhere)
	begun(false, now.Add(-time.Hour))
	say(t, r, card)
	begun(true, now.Add(time.Hour))
	m, err := r.MessageByKey(t.Context(), "card")
	ok(t, err)
	ok(t, r.Sent(t.Context(), m.ID, "$card", now))
	begun(true, now.Add(-time.Second))
	begun(false, now)
}
