package content

import (
	"net/url"
	"strings"

	"maunium.net/go/mautrix/id"
)

// Doc builds a message once and gives it as plain text and as HTML. All text is
// escaped; nothing in it is read as markup, and no link is made of it. The zero
// value is an empty message. A Doc is not safe for concurrent use.
type Doc struct {
	plain strings.Builder
	html  strings.Builder
	rich  bool // something plain text cannot show
}

// Span is a piece of a line: [T], [B], [C] or [EventLink].
type Span struct {
	plain, html string
	rich        bool
}

// T is text as it is.
func T(text string) Span {
	return Span{plain: clean(text), html: lineBreaks(text)}
}

// B is bold text.
func B(text string) Span {
	return Span{plain: clean(text), html: "<strong>" + lineBreaks(text) + "</strong>", rich: true}
}

// C is code within a line.
func C(text string) Span {
	return Span{plain: clean(text), html: "<code>" + EscapeHTML(text) + "</code>", rich: true}
}

// EventLink is a link to an event of a room; the one kind of link that is ever
// written. Identifiers that are not valid give the label alone.
func EventLink(label string, room id.RoomID, event id.EventID) Span {
	if !validID(string(room), '!') || !validID(string(event), '$') {
		return T(label)
	}
	to := "https://matrix.to/#/" + url.PathEscape(string(room)) + "/" + url.PathEscape(string(event))
	return Span{
		plain: clean(label) + " (" + to + ")",
		html:  `<a href="` + EscapeHTML(to) + `">` + EscapeHTML(label) + "</a>",
		rich:  true,
	}
}

// P adds a paragraph.
func (d *Doc) P(spans ...Span) *Doc {
	d.block()
	d.html.WriteString("<p>")
	d.spans(spans)
	d.html.WriteString("</p>")
	return d
}

// Code adds a block of code.
func (d *Doc) Code(text string) *Doc {
	d.block()
	plain, markup := CodeBlock(text)
	d.plain.WriteString(plain)
	d.html.WriteString(markup)
	d.rich = true
	return d
}

// List adds a list with one entry for each item.
func (d *Doc) List(items ...[]Span) *Doc {
	if len(items) == 0 {
		return d
	}
	d.block()
	d.rich = true
	d.html.WriteString("<ul>")
	for i, item := range items {
		if i > 0 {
			d.plain.WriteByte('\n')
		}
		d.plain.WriteString("• ")
		d.html.WriteString("<li>")
		d.spans(item)
		d.html.WriteString("</li>")
	}
	d.html.WriteString("</ul>")
	return d
}

// Plain is the message as plain text, blocks on lines of their own.
func (d *Doc) Plain() string { return d.plain.String() }

// HTML is the message as HTML: p, br, strong, code, pre, ul, li and the links of
// [EventLink], nothing else.
func (d *Doc) HTML() string { return d.html.String() }

// Say is a message of one paragraph of text.
func Say(text string) *Doc { return new(Doc).P(T(text)) }

func (d *Doc) block() {
	if d.plain.Len() > 0 {
		d.plain.WriteByte('\n')
	}
}

func (d *Doc) spans(spans []Span) {
	for _, s := range spans {
		d.plain.WriteString(s.plain)
		d.html.WriteString(s.html)
		d.rich = d.rich || s.rich
	}
}

func lineBreaks(text string) string {
	return strings.ReplaceAll(EscapeHTML(text), "\n", "<br>")
}
