package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"moothall/internal/homeserver"
)

const (
	yes = "✅"
	no  = "❌"
)

// match says whether an event is the one.
type match func(*event.Event) bool

// person has an ordinary client; events are what the homeserver's /sync told
// it, in order.
type person struct {
	t      *testing.T
	id     id.UserID
	client *mautrix.Client
	*timeline
}

type timeline struct {
	mu     sync.Mutex
	events []*event.Event
	news   chan struct{} // closed when events grows, then replaced
}

// in is the same person for a subtest.
func (p *person) in(t *testing.T) *person {
	t.Helper()
	return &person{t: t, id: p.id, client: p.client, timeline: p.timeline}
}

// patientSyncer asks again soon when the homeserver is down.
type patientSyncer struct{ *mautrix.DefaultSyncer }

func (patientSyncer) OnFailedSync(*mautrix.RespSync, error) (time.Duration, error) {
	return 100 * time.Millisecond, nil
}

func newPerson(t *testing.T, hs *homeserver.Server, name string) *person {
	t.Helper()
	token, device, err := hs.Register(t.Context(), name, name+"-password", false)
	if err != nil {
		t.Fatal(err)
	}
	p := &person{t: t, id: id.NewUserID(name, e2eDomain), timeline: &timeline{news: make(chan struct{})}}
	if p.client, err = mautrix.NewClient(hs.URL(), p.id, token); err != nil {
		t.Fatal(err)
	}
	p.client.DeviceID = id.DeviceID(device)
	syncer := patientSyncer{mautrix.NewDefaultSyncer()}
	syncer.FilterJSON = &mautrix.Filter{Room: &mautrix.RoomFilter{Timeline: &mautrix.FilterPart{Limit: 500}}}
	syncer.OnEvent(p.add)
	p.client.Syncer = syncer
	ctx, hangUp := context.WithCancel(context.WithoutCancel(t.Context()))
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for ctx.Err() == nil {
			_ = p.client.SyncWithContext(ctx) // it gives up when it meets a restart at the wrong moment
			pause(ctx, 100*time.Millisecond)
		}
	}()
	t.Cleanup(func() { hangUp(); <-gone })
	return p
}

func (p *timeline) add(_ context.Context, ev *event.Event) {
	if ev.Mautrix.EventSource&event.SourceTimeline == 0 || ev.ID == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.events, func(have *event.Event) bool { return have.ID == ev.ID }) {
		return
	}
	p.events = append(p.events, ev)
	close(p.news)
	p.news = make(chan struct{})
}

func (p *timeline) seen() ([]*event.Event, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.events), p.news
}

// all are the events seen so far that match.
func (p *timeline) all(is match) []*event.Event {
	events, _ := p.seen()
	return slices.DeleteFunc(events, func(ev *event.Event) bool { return !is(ev) })
}

// await waits for the first event that matches.
func (p *person) await(what string, is match) *event.Event {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		events, more := p.seen()
		if i := slices.IndexFunc(events, is); i >= 0 {
			return events[i]
		}
		select {
		case <-more:
		case <-limit.C:
			p.t.Fatalf("%s waited in vain: %s\nseen:%s", p.id, what, summary(events))
		}
	}
}

// trySend sends an event under a transaction id of its own.
func (p *person) trySend(room id.RoomID, kind event.Type, content any) (id.EventID, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	resp, err := p.client.SendMessageEvent(ctx, room, kind, content)
	if err != nil {
		return "", err
	}
	return resp.EventID, nil
}

func (p *person) send(room id.RoomID, kind event.Type, content any) id.EventID {
	p.t.Helper()
	ev, err := p.trySend(room, kind, content)
	if err != nil {
		p.t.Fatalf("%s sends %s: %v", p.id, kind.Type, err)
	}
	return ev
}

func (p *person) say(room id.RoomID, text string) id.EventID {
	p.t.Helper()
	return p.send(room, event.EventMessage, &event.MessageEventContent{MsgType: event.MsgText, Body: text})
}

func (p *person) react(room id.RoomID, to id.EventID, key string) id.EventID {
	p.t.Helper()
	return p.send(room, event.EventReaction, reactionTo(to, key))
}

func reactionTo(to id.EventID, key string) *event.ReactionEventContent {
	return &event.ReactionEventContent{RelatesTo: event.RelatesTo{Type: event.RelAnnotation, EventID: to, Key: key}}
}

// byID waits until p sees an event.
func (p *person) byID(want id.EventID) *event.Event {
	p.t.Helper()
	return p.await("its own event", func(ev *event.Event) bool { return ev.ID == want })
}

// post is a message of the bot in the thread of root, edits apart.
func post(root id.EventID) match {
	return func(ev *event.Event) bool {
		return ev.Type == event.EventMessage && ev.Sender == e2eBot &&
			relation(ev).GetReplaceID() == "" && relation(ev).GetThreadParent() == root
	}
}

// saying narrows post to a text that holds part.
func saying(root id.EventID, part string) match {
	here := post(root)
	return func(ev *event.Event) bool { return here(ev) && strings.Contains(body(ev), part) }
}

// edit is the bot's new text for one of its messages, holding part.
func edit(of id.EventID, part string) match {
	return func(ev *event.Event) bool {
		return ev.Type == event.EventMessage && ev.Sender == e2eBot && relation(ev).GetReplaceID() == of &&
			ev.Content.AsMessage().NewContent != nil && strings.Contains(ev.Content.AsMessage().NewContent.Body, part)
	}
}

// seed is the bot's own reaction to one of its messages; an empty key is any.
func seed(on id.EventID, key string) match {
	return func(ev *event.Event) bool {
		return ev.Type == event.EventReaction && ev.Sender == e2eBot && relation(ev).GetAnnotationID() == on &&
			(key == "" || strings.HasPrefix(relation(ev).Key, strings.TrimSuffix(key, "\ufe0f")))
	}
}

// redactionOf is the bot taking an event back. Room versions differ in where it
// is named.
func redactionOf(what id.EventID) match {
	return func(ev *event.Event) bool {
		return ev.Type == event.EventRedaction && ev.Sender == e2eBot && (ev.Redacts == what || ev.Content.AsRedaction().Redacts == what)
	}
}

func relation(ev *event.Event) *event.RelatesTo {
	switch c := ev.Content.Parsed.(type) {
	case *event.MessageEventContent:
		return c.RelatesTo
	case *event.ReactionEventContent:
		return &c.RelatesTo
	}
	return nil
}

func body(ev *event.Event) string { return ev.Content.AsMessage().Body }

func summary(events []*event.Event) string {
	var b strings.Builder
	for _, ev := range events {
		if ev.Type.Type == "org.example.heartbeat" {
			continue
		}
		b.WriteString("\n  " + ev.ID.String() + " " + ev.Type.Type + " of " + ev.Sender.String())
		if c, ok := ev.Content.Parsed.(*event.MessageEventContent); ok {
			text := c.Body
			if c.NewContent != nil {
				text = "(edit) " + c.NewContent.Body
			}
			b.WriteString(" " + text[:min(len(text), 200)])
		}
		if r := relation(ev); r != nil {
			b.WriteString(" [" + string(r.Type) + " " + r.EventID.String() + "]")
		}
	}
	return b.String()
}

// rawEvent is ev as a homeserver sends it.
func rawEvent(t *testing.T, ev *event.Event) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"event_id": ev.ID, "room_id": ev.RoomID, "sender": ev.Sender, "type": ev.Type.Type,
		"origin_server_ts": ev.Timestamp, "content": ev.Content.Raw,
	})
	if err != nil || ev.Content.Raw == nil {
		t.Error(errors.Join(errors.New("cannot copy an event"), err))
	}
	return string(b)
}
