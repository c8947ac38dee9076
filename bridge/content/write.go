package content

import (
	"html"
	"strings"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// maxEditBody is how much of an edit's text older clients see, in bytes.
const maxEditBody = 256

// Text makes a message a person might want to answer. It mentions exactly the
// people given; nobody else is pinged, whatever the text says.
func Text(d *Doc, mention ...id.UserID) *event.MessageEventContent {
	return d.content(event.MsgText, mention)
}

// Notice makes a message that bots do not answer. It mentions as [Text] does.
func Notice(d *Doc, mention ...id.UserID) *event.MessageEventContent {
	return d.content(event.MsgNotice, mention)
}

func (d *Doc) content(kind event.MessageType, mention []id.UserID) *event.MessageEventContent {
	c := &event.MessageEventContent{
		MsgType:  kind,
		Body:     d.Plain(),
		Mentions: &event.Mentions{},
	}
	if d.rich {
		c.Format, c.FormattedBody = event.FormatHTML, d.HTML()
	}
	for _, user := range mention {
		c.Mentions.Add(user)
	}
	return c
}

// InThread puts c into the thread of root and returns it. latest is the newest
// event of the thread, which clients without threads show as answered; replyTo,
// when not empty, is an event c truly answers and takes its place.
func InThread(c *event.MessageEventContent, root, latest, replyTo id.EventID) *event.MessageEventContent {
	rel := &event.RelatesTo{Type: event.RelThread, EventID: root}
	switch {
	case replyTo != "":
		rel.InReplyTo = &event.InReplyTo{EventID: replyTo}
	case latest != "":
		rel.InReplyTo, rel.IsFallingBack = &event.InReplyTo{EventID: latest}, true
	default:
		rel.InReplyTo, rel.IsFallingBack = &event.InReplyTo{EventID: root}, true
	}
	c.RelatesTo = rel
	return c
}

// Edit makes c the new text of target. People mentioned by c stay named inside
// the new content; outside nobody is, so an edit pings nobody again. c is not
// changed.
func Edit(target id.EventID, c *event.MessageEventContent) *event.MessageEventContent {
	fresh := *c
	fresh.RelatesTo, fresh.NewContent = nil, nil
	if fresh.Mentions == nil {
		fresh.Mentions = &event.Mentions{}
	}
	body := "* " + c.Body
	if short := clip(body, maxEditBody); len(short) < len(body) {
		body = clip(body, maxEditBody-len("…")) + "…"
	}
	return &event.MessageEventContent{
		MsgType:    c.MsgType,
		Body:       body,
		Mentions:   &event.Mentions{},
		NewContent: &fresh,
		RelatesTo:  &event.RelatesTo{Type: event.RelReplace, EventID: target},
	}
}

// Reaction makes the content of an m.reaction with the given key, written as
// given.
func Reaction(target id.EventID, key string) *event.ReactionEventContent {
	return &event.ReactionEventContent{
		RelatesTo: event.RelatesTo{Type: event.RelAnnotation, EventID: target, Key: key},
	}
}

// EscapeHTML returns s as HTML text: no tag, no entity and no attribute can come
// out of it. What is not UTF-8 becomes U+FFFD.
func EscapeHTML(s string) string {
	return html.EscapeString(clean(s))
}

// CodeBlock returns text as a block of code, plain and as HTML.
func CodeBlock(text string) (plain, markup string) {
	text = clean(text)
	return text, "<pre><code>" + html.EscapeString(text) + "</code></pre>"
}

// clean leaves only what a homeserver and a database take.
func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, noNUL), nul, noNUL)
}
