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
		t.Hint = b.talk(&t, &m)
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
	switch b.cfg.Keys.Verdict(strings.TrimRight(text, ".! ")) {
	case content.Approve:
		t.Yes = true
		return true
	case content.Reject:
		return true
	case content.None:
	}
	return false
}

// talk reads a message that is meant for the bot and begins with no prefix: a
// word that is a command is one ("ping" in a direct chat); for the rest it gives
// what to say to it.
func (b *Bridge) talk(t *task, m *content.Message) (hint string) {
	prefix := b.cfg.Commands.Prefix()
	line, ok := commands.Parse(prefix+content.StripMention(m, id.UserID(b.cfg.Bot), b.cfg.Name), prefix)
	switch {
	case ok && b.cfg.Commands.Has(line.Name) && t.Target == "":
		t.Name, t.Rest = line.Name, line.Rest
		return ""
	case t.Target != "":
		return hintCard
	}
	return hintTalk
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
