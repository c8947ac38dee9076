package demo

import (
	"strings"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

func byID(want id.EventID) match {
	return func(ev *event.Event) bool { return ev.ID == want }
}

func membership(room id.RoomID, who id.UserID, want event.Membership) match {
	return func(ev *event.Event) bool {
		return ev.RoomID == room && ev.Type == event.StateMember && ev.GetStateKey() == who.String() &&
			ev.Content.AsMember().Membership == want
	}
}

// topicEvent is the bot setting the topic.
func topicEvent(room id.RoomID, topic string) match {
	return func(ev *event.Event) bool {
		return ev.RoomID == room && ev.Type == event.StateTopic && ev.Sender == botID && ev.Content.AsTopic().Topic == topic
	}
}

// inThread is a message of the bot in the thread of root, edits apart.
func inThread(room id.RoomID, root id.EventID) match {
	return func(ev *event.Event) bool {
		return isPost(ev) && ev.RoomID == room && ev.Sender == botID && relation(ev).GetThreadParent() == root
	}
}

// isPost is a message that is not an edit of another.
func isPost(ev *event.Event) bool {
	return ev.Type == event.EventMessage && relation(ev).GetReplaceID() == ""
}

// relation is what an event relates to; nil, which has no relations, if
// nothing.
func relation(ev *event.Event) *event.RelatesTo {
	switch c := ev.Content.Parsed.(type) {
	case *event.MessageEventContent:
		return c.RelatesTo
	case *event.ReactionEventContent:
		return &c.RelatesTo
	}
	return nil
}

// body is a message's plain text.
func body(ev *event.Event) string { return ev.Content.AsMessage().Body }

// newBody is the text an edit puts in place of another.
func newBody(ev *event.Event) string {
	if c := ev.Content.AsMessage().NewContent; c != nil {
		return c.Body
	}
	return ""
}

// edited is the new text if ev is the bot's edit of the card, else empty.
func edited(ev *event.Event, c *card) string {
	if ev.Type != event.EventMessage || ev.Sender != botID || relation(ev).GetReplaceID() != c.event.ID {
		return ""
	}
	return newBody(ev)
}

// redacts is the event a redaction removes; room versions differ in where it is
// named.
func redacts(ev *event.Event) id.EventID {
	if ev.Redacts != "" {
		return ev.Redacts
	}
	return ev.Content.AsRedaction().Redacts
}

// bare is a reaction key without the mark that asks for a coloured emoji.
func bare(key string) string { return strings.ReplaceAll(key, "\ufe0f", "") }
