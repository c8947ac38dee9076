package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/runtime/gate"
)

// task is what a work row made from an event needs to know of it. It is emptied
// when the row is done.
type task struct {
	Room   string `json:"room"`
	Root   string `json:"root,omitempty"`
	Event  string `json:"event"`
	Sender string `json:"sender"`
	Name   string `json:"name,omitempty"` // command
	Rest   string `json:"rest,omitempty"`
	Target string `json:"target,omitempty"` // approval or execution a reply is about; of a reaction: the event reacted to
	Key    string `json:"key,omitempty"`    // of a reaction
	Yes    bool   `json:"yes,omitempty"`    // of an answer in words
	Hint   string `json:"hint,omitempty"`   // say this instead of running anything
}

// placeRef is how the bridge finds its way back from an [gate.Origin].
type placeRef struct {
	Room  string `json:"room"`
	Root  string `json:"root"`
	Event string `json:"event"` // the asking event
}

func (t task) origin() gate.Origin {
	ref, err := json.Marshal(placeRef{t.Room, t.Root, t.Event})
	if err != nil {
		ref = nil // three strings always marshal
	}
	return gate.Origin{Place: t.Room, Lane: lane(t.Room, t.Root), Ref: string(ref)}
}

func lane(room, root string) string { return room + " " + root }

func placeOf(o gate.Origin) (placeRef, error) {
	var p placeRef
	if err := json.Unmarshal([]byte(o.Ref), &p); err != nil || p.Room == "" {
		return p, errors.New("the origin names no room")
	}
	return p, nil
}

// Keys of notes.
const (
	noteEncrypted = "encrypted/" // + room: it is encrypted, say nothing there
	noteForeign   = "foreign/"   // + sender: told that strangers are not served
	noteHint      = "hint/"      // + target + sender: told why a decision does not count
)

// routeNext takes the oldest event of the room whose lease ctx carries.
func (b *Bridge) routeNext(ctx context.Context) (bool, error) {
	e, ok, err := b.cfg.Rows.NextEvent(ctx, b.now())
	if err != nil || !ok {
		return false, err
	}
	log := zerolog.Ctx(ctx).With().Str("event_id", e.ID).Str("room_id", e.Room).Str("sender", e.Sender).Str("type", e.Type).Logger()
	ctx = log.WithContext(ctx)
	r, err := b.route(ctx, e)
	if err != nil {
		return false, fmt.Errorf("route: %w", err)
	}
	if err := b.cfg.Rows.Route(ctx, e.Seq, r, b.now()); err != nil {
		return false, fmt.Errorf("record route: %w", err)
	}
	log.Debug().Str("why", r.Note).Int("work", len(r.Work)).Msg("Routed an event")
	return true, nil
}

// ignored ends an event that is of no concern; why is for the log.
func ignored(why string) (queue.Routed, error) { return queue.Routed{Note: why}, nil }

// route decides what becomes of one event.
func (b *Bridge) route(ctx context.Context, e queue.Event) (queue.Routed, error) {
	m, err := content.Parse(e.Body)
	if err != nil {
		return ignored("unreadable")
	}
	switch e.Type {
	case typeMessage:
		return b.routeMessage(ctx, e, m)
	case typeReaction:
		if e.Sender == b.cfg.Bot || m.Annotates == "" || m.Key == "" {
			return ignored("reaction of no concern")
		}
		return queue.Routed{Note: "reaction", Work: []queue.Work{control(queue.KindReaction, e.ID, task{
			Room: e.Room, Event: e.ID, Sender: e.Sender, Target: m.Annotates.String(), Key: m.Key,
		})}}, nil
	case typeMember:
		return b.routeMember(e, m)
	case typeRedaction:
		if m.Redacts != "" {
			if err := b.cfg.Rows.Wipe(ctx, e.Room, m.Redacts.String()); err != nil {
				return queue.Routed{}, fmt.Errorf("wipe redacted text: %w", err)
			}
		}
		if m.Redacts == "" || e.Sender == b.cfg.Bot {
			return ignored("redaction of no concern")
		}
		return queue.Routed{Note: "redaction", Work: []queue.Work{control(queue.KindRedacted, e.ID, task{
			Room: e.Room, Event: e.ID, Sender: e.Sender, Target: m.Redacts.String(),
		})}}, nil
	case typeEncryption, typeEncrypted:
		return b.routeEncrypted(ctx, e)
	case typeTombstone:
		if m.StateKey == nil {
			return ignored("no state event")
		}
		return queue.Routed{Note: "upgraded", Work: []queue.Work{control(queue.KindLeft, e.ID, task{
			Room: e.Room, Event: e.ID, Sender: e.Sender, Target: leftUpgraded,
		})}}, nil
	case typeRoomName:
		b.rooms.forget(e.Room)
	}
	return ignored("type of no concern")
}

// control makes a row of a lane of its own: it waits for nothing.
func control(k queue.Kind, ref string, t task) queue.Work {
	return queue.Work{Key: string(k) + "/" + ref, Class: queue.ClassControl, Lane: ref, Kind: k, Ref: ref, Data: encode(t)}
}

func encode(t task) json.RawMessage {
	b, err := json.Marshal(t)
	if err != nil {
		return nil // strings and booleans always marshal
	}
	return b
}

func (b *Bridge) routeMember(e queue.Event, m content.Message) (queue.Routed, error) {
	if m.StateKey == nil {
		return ignored("no state event")
	}
	b.rooms.forget(e.Room)
	var c json.RawMessage
	var membership string
	if exact(e.Body, map[string]any{"content": &c}) != nil || exact(c, map[string]any{"membership": &membership}) != nil {
		return ignored("unreadable")
	}
	t := task{Room: e.Room, Event: e.ID, Sender: e.Sender, Target: *m.StateKey}
	switch membership {
	case "invite":
		if *m.StateKey == b.cfg.Bot {
			return queue.Routed{Note: "invited", Work: []queue.Work{control(queue.KindInvite, e.ID, t)}}, nil
		}
	case "leave", "ban":
		return queue.Routed{Note: "left", Work: []queue.Work{control(queue.KindLeft, e.ID, t)}}, nil
	}
	return ignored("membership of no concern")
}

// routeEncrypted notes that a room is encrypted. It is said there once, and
// never again anything in clear.
func (b *Bridge) routeEncrypted(ctx context.Context, e queue.Event) (queue.Routed, error) {
	if e.Sender == b.cfg.Bot {
		return ignored("own")
	}
	known, err := b.cfg.Rows.Note(ctx, noteEncrypted+e.Room)
	if err != nil {
		return queue.Routed{}, fmt.Errorf("read note: %w", err)
	}
	if known != "" {
		return ignored("encrypted")
	}
	return queue.Routed{Note: "encrypted", Work: []queue.Work{control(queue.KindMessage, e.ID, task{
		Room: e.Room, Event: e.ID, Sender: e.Sender, Hint: hintEncrypted,
	})}}, nil
}

// Hints that are said instead of running anything.
const (
	hintEncrypted = "encrypted"
	hintForeign   = "foreign"
	hintOld       = "old"
	hintTalk      = "talk"
	hintCard      = "card" // a reply to a card that is neither yes nor no
)
