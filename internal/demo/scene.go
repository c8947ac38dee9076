package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// scene is what the steps of the story have in common: the people, the room,
// and what of it was told already.
type scene struct {
	*checks
	alice, bob *person
	room       id.RoomID
	told       map[id.EventID]bool
}

// card is an approval in the room.
type card struct {
	event *event.Event
	root  id.EventID   // the asker's message, whose thread it is in
	seeds []id.EventID // the bot's own reactions
}

func newScene(t *transcript, c *checks) *scene {
	c.to = t
	return &scene{checks: c, told: map[id.EventID]bool{}}
}

// await waits until alice sees an event, and tells it.
func (s *scene) await(ctx context.Context, what string, after id.EventID, is match) (*event.Event, error) {
	ev, err := s.alice.await(ctx, what, after, is)
	if err != nil {
		return nil, err
	}
	s.tell(ev)
	return ev, nil
}

// say has somebody write in the room.
func (s *scene) say(ctx context.Context, p *person, text string) (id.EventID, error) {
	sent, err := p.send(ctx, s.room, event.EventMessage, &event.MessageEventContent{MsgType: event.MsgText, Body: text})
	if err != nil {
		return "", err
	}
	_, err = s.await(ctx, "alice sees what "+p.id.String()+" wrote", "", byID(sent))
	return sent, err
}

// react has somebody react to a card.
func (s *scene) react(ctx context.Context, p *person, c *card, key string) (id.EventID, error) {
	sent, err := p.send(ctx, s.room, event.EventReaction, &event.ReactionEventContent{
		RelatesTo: event.RelatesTo{Type: event.RelAnnotation, EventID: c.event.ID, Key: key},
	})
	if err != nil {
		return "", err
	}
	_, err = s.await(ctx, "alice sees the reaction of "+p.id.String(), "", byID(sent))
	return sent, err
}

// answer waits for a message of the bot in the thread of root.
func (s *scene) answer(ctx context.Context, root id.EventID, what string, after id.EventID, is match) (*event.Event, error) {
	here := inThread(s.room, root)
	return s.await(ctx, what, after, func(ev *event.Event) bool { return here(ev) && is(ev) })
}

// card waits for the card that asks whether tool may run for bob, and checks
// what it says.
func (s *scene) card(ctx context.Context, ask id.EventID, tool, argument string) (*card, error) {
	ev, err := s.answer(ctx, ask, "a card for "+tool, "", func(ev *event.Event) bool {
		return strings.Contains(body(ev), tool) && strings.Contains(body(ev), s.bob.id.String())
	})
	if err != nil {
		return nil, err
	}
	c := &card{event: ev, root: ask}
	for _, key := range []string{yes, no} {
		seed, err := s.alice.await(ctx, "the bot offers "+key, "", func(ev *event.Event) bool {
			return ev.Sender == botID && ev.Type == event.EventReaction && relation(ev).GetAnnotationID() == c.event.ID && bare(relation(ev).Key) == key
		})
		if err != nil {
			return nil, err
		}
		s.told[seed.ID] = true
		c.seeds = append(c.seeds, seed.ID)
	}
	s.to.says(1, botID.Localpart(), "reacts ✅ and ❌, to be tapped")
	text, before := strings.ToLower(body(ev)), s.failed
	for _, part := range []struct {
		what string
		any  []string
	}{
		{"the argument", []string{argument}},
		{"the side effect", []string{"write"}},
		{"the risk", []string{"low", "medium", "high", "critical"}},
		{"when it expires", []string{"expire", "until"}},
	} {
		named := slices.ContainsFunc(part.any, func(w string) bool { return strings.Contains(text, strings.ToLower(w)) })
		if !named {
			s.that(false, "the card says "+part.what, strings.Join(part.any, " or "), body(ev))
		}
	}
	if s.failed == before {
		s.done("a card in the thread names tool, argument, asker, side effect, risk and expiry, and offers ✅ and ❌")
	}
	return c, nil
}

// closed waits until the card shows its outcome, by whom (if anybody), and the
// bot's own reactions are gone.
func (s *scene) closed(ctx context.Context, c *card, after id.EventID, outcome string, by id.UserID) error {
	want := outcome
	if by != "" {
		want += " by " + by.String()
	}
	_, err := s.await(ctx, "the card becomes "+want, after, func(ev *event.Event) bool {
		text := strings.ToLower(edited(ev, c))
		return strings.Contains(text, outcome) && strings.Contains(text, by.String())
	})
	if err != nil {
		return err
	}
	for _, seed := range c.seeds {
		gone, err := s.alice.await(ctx, "the bot takes its own reactions away", after, func(ev *event.Event) bool {
			return ev.Type == event.EventRedaction && ev.Sender == botID && redacts(ev) == seed
		})
		if err != nil {
			return err
		}
		s.told[gone.ID] = true
	}
	s.to.says(1, botID.Localpart(), "takes its own ✅ and ❌ away")
	s.done("the card now says " + want + ", and the bot's own ✅ and ❌ are gone")
	return nil
}

// nothing watches for a while that a reaction has no effect.
func (s *scene) nothing(ctx context.Context, c *card, after id.EventID, what string) error {
	ev, err := s.alice.hold(ctx, quietTime, after, func(ev *event.Event) bool {
		return ev.RoomID == s.room && (ev.Type == event.StateTopic || ev.Type == event.EventRedaction || edited(ev, c) != "")
	})
	if err != nil {
		return err
	}
	seen := "nothing"
	if ev != nil {
		seen = summary([]*event.Event{ev})
	}
	s.that(ev == nil, what, "nothing", seen)
	return nil
}

// tell puts an event of the room into the transcript, once.
func (s *scene) tell(ev *event.Event) {
	if s.told[ev.ID] {
		return
	}
	s.told[ev.ID] = true
	who := ev.Sender.Localpart()
	switch rel := relation(ev); {
	case ev.Type == event.EventMessage && rel.GetReplaceID() != "":
		s.to.says(1, who, "(edits the card)\n"+newBody(ev))
	case ev.Type == event.EventMessage && rel.GetThreadParent() != "":
		s.to.says(1, who, body(ev))
	case ev.Type == event.EventMessage:
		s.to.says(0, who, body(ev))
	case ev.Type == event.EventReaction:
		s.to.says(1, who, "reacts "+rel.Key)
	case ev.Type == event.EventRedaction:
		s.to.says(1, who, "takes a reaction back")
	case ev.Type == event.StateTopic:
		s.to.says(0, who, fmt.Sprintf("(sets the topic: %q)", ev.Content.AsTopic().Topic))
	}
}

// tellRest tells what nobody waited for, so that nothing in the room stays
// hidden from the reader.
func (s *scene) tellRest() {
	if s.alice == nil {
		return
	}
	for _, ev := range s.alice.all(func(ev *event.Event) bool { return ev.RoomID == s.room }) {
		s.tell(ev)
	}
}
