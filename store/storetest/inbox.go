package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"moothall/bridge/queue"
)

func inboxKeepsEventsOnce(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	n, err := r.Accept(t.Context(), []queue.Event{event("$1", room), event("$2", other), event("$1", room)}, nil, now)
	ok(t, err)
	equal(t, "new", n, 2)
	changed := event("$1", other)
	changed.Body = json.RawMessage(`{"other":1}`)
	n, err = r.Accept(t.Context(), []queue.Event{changed, event("$3", room)}, nil, now)
	ok(t, err)
	equal(t, "new", n, 1)
	n, err = r.Accept(t.Context(), nil, nil, now)
	ok(t, err)
	equal(t, "new", n, 0)
	e, err := r.Event(t.Context(), room, "$1")
	ok(t, err)
	want := event("$1", room)
	want.Seq, want.ReceivedAt = e.Seq, now
	equal(t, "event", e, want)
	_, err = r.Event(t.Context(), other, "$1")
	is(t, err, queue.ErrNotFound)
}

func inboxBadBodies(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r := s.Rows()
	now := start()
	huge := json.RawMessage(strings.Repeat("x", 1<<20))
	bad := []json.RawMessage{json.RawMessage("{"), json.RawMessage("{"), huge, nil, json.RawMessage("\x00\xff")}
	for range 2 { // a repeat adds nothing
		n, err := r.Accept(t.Context(), []queue.Event{event("$noroom", ""), event("", room)}, bad, now)
		ok(t, err)
		equal(t, "new", n, 0)
	}
	noClaim(t, r, queue.ClassRoom, now)
	st, err := s.Stats(t.Context())
	ok(t, err)
	equal(t, "bad events", st.BadEvents, 6)
	backlog, _, err := r.Backlog(t.Context(), now)
	ok(t, err)
	equal(t, "backlog", backlog, 0)
}

func inboxHostileText(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r := s.Rows()
	now := start()
	e := event("$1", room)
	e.Type, e.Sender, e.Body = "a\x00b", "\xff", json.RawMessage("\"\x00\xff\"")
	n, err := r.Accept(t.Context(), []queue.Event{e, event("$\x00", room), event("$2", "!\xff"), event("$3", room)}, nil, now)
	ok(t, err)
	equal(t, "new", n, 2)
	got, err := r.Event(t.Context(), room, "$1")
	ok(t, err)
	equal(t, "type", got.Type, "a\uFFFDb")
	ctx, _ := claim(t, r, queue.ClassRoom, now)
	next, _, err := r.NextEvent(ctx, now)
	ok(t, err)
	ok(t, r.Route(ctx, next.Seq, queue.Routed{Note: "\x00", Work: []queue.Work{{
		Key: "k", Class: queue.ClassThread, Lane: "a", Kind: queue.KindMessage, Data: json.RawMessage("\x00\xff"),
	}}}, now))
}

func inboxManyEvents(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	var all []queue.Event
	for i := range 250 {
		all = append(all, event(fmt.Sprintf("$%03d", i), room))
	}
	n, err := r.Accept(t.Context(), all, nil, now)
	ok(t, err)
	equal(t, "new", n, 250)
	ctx, _ := claim(t, r, queue.ClassRoom, now)
	for i := range 250 {
		e, found, err := r.NextEvent(ctx, now)
		ok(t, err)
		equal(t, "found", found, true)
		equal(t, "id", e.ID, fmt.Sprintf("$%03d", i))
		ok(t, r.Route(ctx, e.Seq, queue.Routed{}, now))
	}
}

func inboxOrderAndHeadOfLine(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	_, _, err := r.NextEvent(t.Context(), now)
	if err == nil {
		t.Fatal("without a lease there is no lane")
	}
	_, err = r.Accept(t.Context(), []queue.Event{event("$1", room), event("$2", room)}, nil, now)
	ok(t, err)
	ctx, l := claim(t, r, queue.ClassRoom, now)
	e, _, err := r.NextEvent(ctx, now)
	ok(t, err)
	equal(t, "id", e.ID, "$1")
	ok(t, r.RetryEvent(ctx, e.Seq, now.Add(time.Minute)))
	_, found, err := r.NextEvent(ctx, now.Add(time.Minute-time.Millisecond))
	ok(t, err)
	equal(t, "the second before the first", found, false)
	e, _, err = r.NextEvent(ctx, now.Add(time.Minute))
	ok(t, err)
	equal(t, "id", e.ID, "$1")
	equal(t, "attempts", e.Attempts, 1)
	ok(t, r.Route(ctx, e.Seq, queue.Routed{}, now))
	e, _, err = r.NextEvent(ctx, now)
	ok(t, err)
	equal(t, "id", e.ID, "$2")
	ok(t, r.Release(ctx, l))
	is(t, r.RetryEvent(t.Context(), 999, now), queue.ErrNotFound)
}

func inboxRoute(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	_, err := r.Accept(t.Context(), []queue.Event{event("$1", room), event("$2", room)}, nil, now)
	ok(t, err)
	_, err = r.Root(t.Context(), room, "$1")
	is(t, err, queue.ErrNotFound)
	ctx, l := claim(t, r, queue.ClassRoom, now)
	e, _, err := r.NextEvent(ctx, now)
	ok(t, err)
	routed := queue.Routed{Root: "$root", Note: "command", Keep: true, Work: []queue.Work{row("k1", "a")}}
	ok(t, r.Route(ctx, e.Seq, routed, now))
	routed.Root, routed.Work = "$changed", []queue.Work{row("k9", "a")}
	ok(t, r.Route(ctx, e.Seq, routed, now)) // a repeat adds nothing
	second, _, err := r.NextEvent(ctx, now)
	ok(t, err)
	ok(t, r.Route(ctx, second.Seq, queue.Routed{Note: "ignored"}, now))
	_, found, err := r.NextEvent(ctx, now)
	ok(t, err)
	equal(t, "found", found, false)
	ok(t, r.Release(ctx, l))
	is(t, r.Route(t.Context(), 999, queue.Routed{}, now), queue.ErrNotFound)

	root, err := r.Root(t.Context(), room, "$1")
	ok(t, err)
	equal(t, "root", root, "$root")
	root, err = r.Root(t.Context(), room, "$2")
	ok(t, err)
	equal(t, "root", root, "")
	_, err = r.Root(t.Context(), other, "$1")
	is(t, err, queue.ErrNotFound)
	kept, err := r.Event(t.Context(), room, "$1")
	ok(t, err)
	equal(t, "kept body", string(kept.Body), string(event("", "").Body))
	emptied, err := r.Event(t.Context(), room, "$2")
	ok(t, err)
	equal(t, "emptied body", len(emptied.Body), 0)
	for root, want := range map[string]string{"$root": "$1", "": "", "$none": ""} {
		latest, err := r.Latest(t.Context(), room, root)
		ok(t, err)
		equal(t, "latest of "+root, latest, want)
	}
	equal(t, "work", keys(work(t, r, queue.ClassThread, now)), []string{"k1"})
}

func inboxWipeAndBacklog(t *testing.T, fresh Fresh) {
	t.Helper()
	r := open(t, fresh(t)).Rows()
	now := start()
	n, age, err := r.Backlog(t.Context(), now)
	ok(t, err)
	equal(t, "backlog", n, 0)
	equal(t, "age", age, 0)
	_, err = r.Accept(t.Context(), []queue.Event{event("$1", room), event("$2", room)}, nil, now)
	ok(t, err)
	n, age, err = r.Backlog(t.Context(), now.Add(time.Minute))
	ok(t, err)
	equal(t, "backlog", n, 2)
	equal(t, "age", age, time.Minute)
	ok(t, r.Wipe(t.Context(), other, "$1"))
	e, err := r.Event(t.Context(), room, "$1")
	ok(t, err)
	equal(t, "wiped in another room", len(e.Body) > 0, true)
	ok(t, r.Wipe(t.Context(), room, "$1"))
	ok(t, r.Wipe(t.Context(), room, "$unknown"))
	e, err = r.Event(t.Context(), room, "$1")
	ok(t, err)
	equal(t, "body", len(e.Body), 0)
	equal(t, "type", e.Type, "m.room.message")
}
