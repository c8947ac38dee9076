package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/commands"
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
)

func (b *Bridge) routeMessage(ctx context.Context, e queue.Event, m content.Message) (queue.Routed, error) {
	if m.StateKey != nil {
		return ignored("state event")
	}
	if m.Replaces != "" {
		return ignored("edit") // an edit starts nothing
	}
	root, err := b.rootOf(ctx, e.Room, &m)
	if err != nil {
		return queue.Routed{}, err
	}
	r := queue.Routed{Root: root}
	if why := b.unwanted(e, m); why != "" {
		r.Note = why
		return r, nil
	}
	if enc, err := b.cfg.Rows.Note(ctx, noteEncrypted+e.Room); err != nil {
		return r, fmt.Errorf("read note: %w", err)
	} else if enc != "" {
		r.Note = "clear text in an encrypted room"
		return r, nil
	}
	t := task{Room: e.Room, Root: root, Event: e.ID, Sender: e.Sender}
	if t.Target, err = b.targetOf(ctx, e.Room, m); err != nil {
		return r, err
	}
	addressed := b.read(&t, &m)
	if !addressed {
		if addressed, err = b.addressed(ctx, e, &m); err != nil {
			return r, err
		}
		t.Hint = hintTalk
	}
	if !addressed {
		r.Note = "not addressed"
		return r, nil
	}
	switch {
	case !strings.HasSuffix(e.Sender, ":"+b.cfg.Domain):
		t.Hint = hintForeign
	case !e.SentAt.IsZero() && e.ReceivedAt.Sub(e.SentAt) > b.cfg.EventAge:
		t.Hint = hintOld
	}
	r.Note, r.Work = "message", []queue.Work{b.messageWork(t)}
	return r, nil
}

// messageWork puts a message where it belongs: decisions never wait for a busy
// thread, the rest keeps the thread's order.
func (b *Bridge) messageWork(t task) queue.Work {
	w := queue.Work{
		Key: "message/" + t.Event, Class: queue.ClassThread, Lane: lane(t.Room, t.Root),
		Kind: queue.KindMessage, Ref: t.Event, Data: encode(t),
	}
	switch {
	case t.Hint != "":
	case t.Name == "":
		w.Class, w.Lane, w.Kind = queue.ClassControl, t.Event, queue.KindAnswer
	case b.cfg.Commands.Control(t.Name):
		w.Class, w.Lane = queue.ClassControl, t.Event
	}
	return w
}

// read looks for a command, or an answer in words to a card.
func (b *Bridge) read(t *task, m *content.Message) bool {
	text := content.StripMention(m, id.UserID(b.cfg.Bot), b.cfg.Name)
	prefix := b.cfg.Commands.Prefix()
	line, ok := commands.Parse(text, prefix)
	if !ok && text != strings.TrimSpace(m.Body) {
		// "moothall: ping" is a command without its prefix.
		if line, ok = commands.Parse(prefix+text, prefix); ok && !b.cfg.Commands.Has(line.Name) {
			ok = false
		}
	}
	if ok {
		t.Name, t.Rest = line.Name, line.Rest
		return true
	}
	if t.Target == "" {
		return false
	}
	switch b.cfg.Keys.Verdict(text) {
	case content.Approve:
		t.Yes = true
		return true
	case content.Reject:
		return true
	case content.None:
	}
	return false
}

// unwanted says why a message is never answered, or "".
func (b *Bridge) unwanted(e queue.Event, m content.Message) string {
	switch {
	case e.Sender == b.cfg.Bot:
		return "own"
	case m.MsgType != event.MsgText:
		return "msgtype of no concern" // notices above all: bots must not answer bots
	}
	var c struct {
		Content map[string]json.RawMessage `json:"content"`
	}
	if json.Unmarshal(e.Body, &c) != nil {
		return "unreadable"
	}
	if _, internal := c.Content["INTERNAL"]; internal {
		return "internal"
	}
	return ""
}

// addressed reports whether talk that is no command is meant for the bot.
func (b *Bridge) addressed(ctx context.Context, e queue.Event, m *content.Message) (bool, error) {
	if content.IsMentioned(m, id.UserID(b.cfg.Bot), b.cfg.Name) {
		return true, nil
	}
	if m.InReplyTo != "" && !m.IsFallingBack {
		_, err := b.cfg.Rows.MessageByEvent(ctx, e.Room, m.InReplyTo.String())
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, queue.ErrNotFound) {
			return false, fmt.Errorf("look up reply: %w", err)
		}
	}
	return b.rooms.direct(ctx, b.cfg.Homeserver, e.Room, b.now()), nil
}

// targetOf gives the approval or execution whose card or notice m replies to.
func (b *Bridge) targetOf(ctx context.Context, room string, m content.Message) (string, error) {
	if m.InReplyTo == "" || m.IsFallingBack {
		return "", nil
	}
	out, err := b.cfg.Rows.MessageByEvent(ctx, room, m.InReplyTo.String())
	if errors.Is(err, queue.ErrNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up reply: %w", err)
	}
	if out.Part == queue.PartCard || out.Part == queue.PartUnknown {
		return out.Ref, nil
	}
	return "", nil
}

// fetchLimit bounds the look-up of one parent; a message waits no longer for it.
const fetchLimit = 5 * time.Second

// rootOf finds a message's thread root from what is stored, asking the
// homeserver for parents that are not. A parent that cannot be had never loses
// the message: it then hangs from the best root known.
func (b *Bridge) rootOf(ctx context.Context, room string, m *content.Message) (string, error) {
	fetched := map[id.EventID]content.Message{}
	var fault error
	lookup := func(ev id.EventID) (id.EventID, bool, bool) {
		if p, ok := fetched[ev]; ok {
			up, reply := content.Place(&p)
			return up, reply, true
		}
		root, err := b.cfg.Rows.Root(ctx, room, ev.String())
		if err == nil && root != "" {
			return id.EventID(root), false, true
		}
		if err != nil && !errors.Is(err, queue.ErrNotFound) {
			fault = err
		}
		return "", false, false
	}
	for {
		root, need := content.Root(m, lookup)
		if fault != nil {
			return "", fmt.Errorf("look up thread root: %w", fault)
		}
		if need == "" || len(fetched) >= content.MaxAncestors {
			return root.String(), nil
		}
		p, err := b.fetch(ctx, room, need)
		if err != nil {
			zerolog.Ctx(ctx).Warn().Err(err).Stringer("parent", need).Msg("Could not fetch a parent, the message starts its own thread")
			return root.String(), nil
		}
		fetched[need] = p
	}
}

func (b *Bridge) fetch(ctx context.Context, room string, ev id.EventID) (content.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	raw, err := b.cfg.Homeserver.Event(ctx, room, ev.String())
	if err != nil {
		return content.Message{}, err
	}
	m, err := content.Parse(raw)
	if err != nil {
		return m, err
	}
	m.ID = ev
	return m, nil
}
