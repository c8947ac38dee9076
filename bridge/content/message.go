// Package content turns event content into plain values and back: text, mentions,
// relations and reaction keys on the way in; bodies, HTML, thread relations and
// edits on the way out.
//
// Everything read here was written by a stranger. A field of the wrong JSON type
// counts as absent, lengths are capped, HTML is read token by token without a
// tree or recursion, and nothing panics. What is written here escapes all text it
// is given, makes no link out of it, and always says explicitly whom it mentions.
//
// All functions are pure and safe for concurrent use. Nothing here is authority:
// who may do what is never read from content.
package content

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// Limits on what is read from one event, in bytes.
const (
	MaxEvent    = 1 << 20  // a larger event is refused
	MaxBody     = 64 << 10 // text beyond it is left out
	MaxKey      = 256      // a longer reaction key matches nothing
	maxID       = 255      // a longer identifier counts as absent
	maxName     = 1 << 10  // file name and MIME type
	maxPills    = 256      // pills beyond it are left out
	maxMentions = 4096     // entries of m.mentions beyond it are left out; no 64 KiB event holds more
	nul         = "\x00"   // no database column of text takes it
	noNUL       = "\uFFFD" // what stands in its place
)

// ErrNotObject is returned for an event that is not one JSON object.
var ErrNotObject = errors.New("event is not a JSON object")

// ErrTooLarge is returned for an event above [MaxEvent].
var ErrTooLarge = errors.New("event is too large")

// Message is one event as far as a conversation cares. It is a plain value; zero
// fields mean the event did not say, or said it in the wrong type.
type Message struct {
	Type     string
	ID       id.EventID
	Room     id.RoomID
	Sender   id.UserID
	SentAt   int64   // origin_server_ts, Unix milliseconds as the sender's server claims
	StateKey *string // nil: not a state event

	MsgType event.MessageType
	// Body is the plain text without a reply's quotation.
	Body string
	// Cut tells that Body was longer than [MaxBody].
	Cut bool
	// File is the name of an attached file: filename, else the body. Only set
	// for media.
	File string
	MIME string // of the attached file; empty when not said

	// Mentioned are the people in m.mentions, HasMentions tells that the client
	// sent that key at all.
	Mentioned   []id.UserID
	HasMentions bool
	// Pills are the links to people in the HTML, in order, the quotation left out.
	Pills []Pill

	Relation

	// Redacts is the event this one redacts.
	Redacts id.EventID
}

// Relation is what an event hangs from. Relations of state events are not read.
type Relation struct {
	// ThreadRoot is set by m.thread, or the older io.element.thread.
	ThreadRoot id.EventID
	// InReplyTo is the event replied to; in a thread with IsFallingBack it only
	// helps clients that do not know threads.
	InReplyTo     id.EventID
	IsFallingBack bool

	// Replaces is the event this one edits; NewBody its new text.
	Replaces id.EventID
	NewBody  string

	// Annotates and Key are a reaction's. Key is as sent: see [Key] for
	// comparing. A key above [MaxKey] is dropped and KeyTooLong set.
	Annotates  id.EventID
	Key        string
	KeyTooLong bool
}

// IsReply reports whether the event answers another one outside any thread.
func (m *Message) IsReply() bool {
	return m.ThreadRoot == "" && m.Replaces == "" && m.InReplyTo != ""
}

// HasFile reports whether the event carries a file.
func (m *Message) HasFile() bool { return isFile(m.MsgType) }

func isFile(t event.MessageType) bool {
	switch t {
	case event.MsgFile, event.MsgImage, event.MsgAudio, event.MsgVideo:
		return true
	default:
		return false
	}
}

// Parse reads a client event as a homeserver delivers it. The only errors are
// [ErrTooLarge] and [ErrNotObject].
func Parse(raw json.RawMessage) (Message, error) {
	if len(raw) > MaxEvent {
		return Message{}, ErrTooLarge
	}
	ev, ok := object(raw)
	if !ok {
		return Message{}, ErrNotObject
	}
	c, _ := object(ev["content"])
	m := Message{
		Type:    clip(text(ev["type"]), maxID),
		ID:      id.EventID(identifier(ev["event_id"], '$')),
		Room:    id.RoomID(identifier(ev["room_id"], '!')),
		Sender:  id.UserID(identifier(ev["sender"], '@')),
		SentAt:  integer(ev["origin_server_ts"]),
		MsgType: event.MessageType(clip(text(c["msgtype"]), maxID)),
		Redacts: id.EventID(identifier(ev["redacts"], '$')),
	}
	if key, has := str(ev["state_key"]); has {
		m.StateKey = &key
	}
	if m.Redacts == "" && m.Type == event.EventRedaction.Type {
		m.Redacts = id.EventID(identifier(c["redacts"], '$'))
	}
	if m.StateKey == nil {
		m.Relation = relation(c)
	}
	m.readText(c)
	m.readMentions(c)
	return m, nil
}

func (m *Message) readText(c map[string]json.RawMessage) {
	whole := text(c["body"])
	body := clip(whole, MaxBody)
	m.Cut = len(body) < len(whole)
	if isFile(m.MsgType) {
		m.File = text(c["filename"])
		if m.File == "" {
			m.File = body
		}
		m.File = clip(m.File, maxName)
		info, _ := object(c["info"])
		m.MIME = clip(text(info["mimetype"]), maxName)
	}
	if m.InReplyTo != "" {
		body = stripQuotation(body)
	}
	m.Body = body
	if text(c["format"]) == string(event.FormatHTML) {
		m.Pills = pills(clip(text(c["formatted_body"]), MaxBody))
	}
}

func (m *Message) readMentions(c map[string]json.RawMessage) {
	mentions, ok := object(c["m.mentions"])
	if !ok {
		return
	}
	m.HasMentions = true
	list := json.NewDecoder(bytes.NewReader(mentions["user_ids"]))
	if open, err := list.Token(); err != nil || open != json.Delim('[') {
		return
	}
	seen := make(map[string]bool)
	for range maxMentions {
		var entry json.RawMessage
		if !list.More() || list.Decode(&entry) != nil {
			return
		}
		if user := identifier(entry, '@'); user != "" && !seen[user] {
			seen[user] = true
			m.Mentioned = append(m.Mentioned, id.UserID(user))
		}
	}
}

func relation(c map[string]json.RawMessage) Relation {
	var r Relation
	rel, ok := object(c["m.relates_to"])
	if !ok {
		return r
	}
	target := id.EventID(identifier(rel["event_id"], '$'))
	reply, _ := object(rel["m.in_reply_to"])
	r.InReplyTo = id.EventID(identifier(reply["event_id"], '$'))
	switch text(rel["rel_type"]) {
	case string(event.RelThread), "io.element.thread":
		r.ThreadRoot = target
		r.IsFallingBack = truth(rel["is_falling_back"])
	case string(event.RelReplace):
		r.Replaces = target
		fresh, _ := object(c["m.new_content"])
		r.NewBody = clip(text(fresh["body"]), MaxBody)
	case string(event.RelAnnotation):
		r.Annotates = target
		r.Key = text(rel["key"])
		if len(r.Key) > MaxKey {
			r.Key, r.KeyTooLong = "", true
		}
	}
	return r
}

// stripQuotation removes the lines an older client puts before a reply: "> <@…"
// and what follows with a ">", then one empty line. Lines a person quoted by hand
// do not begin that way and stay.
func stripQuotation(body string) string {
	if !strings.HasPrefix(body, "> <@") && !strings.HasPrefix(body, "> * <@") {
		return body
	}
	rest := body
	for strings.HasPrefix(rest, ">") {
		_, after, _ := strings.Cut(rest, "\n")
		rest = after
	}
	if strings.HasPrefix(rest, "\r\n") {
		return rest[2:]
	}
	return strings.TrimPrefix(rest, "\n")
}

// object reads a JSON object. Maps, not structs, because encoding/json matches
// struct fields without regard to case: "Body" is not "body".
func object(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &m) != nil || m == nil {
		return nil, false
	}
	return m, true
}

func str(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", false
	}
	return strings.ReplaceAll(s, nul, noNUL), true
}

func text(raw json.RawMessage) string {
	s, _ := str(raw)
	return s
}

func truth(raw json.RawMessage) bool { return string(raw) == "true" }

func integer(raw json.RawMessage) int64 {
	var n int64
	if len(raw) == 0 || json.Unmarshal(raw, &n) != nil {
		return 0
	}
	return n
}

// identifier reads a Matrix identifier: sigil, then something, without spaces and
// control characters. Anything else is "".
func identifier(raw json.RawMessage, sigil byte) string {
	s := text(raw)
	if !validID(s, sigil) {
		return ""
	}
	return s
}

func validID(s string, sigil byte) bool {
	if len(s) < 2 || len(s) > maxID || s[0] != sigil {
		return false
	}
	if sigil == '@' && strings.IndexByte(s, ':') < 1 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return r == utf8.RuneError || unicode.IsSpace(r) || unicode.IsControl(r)
	}) < 0
}

// clip cuts s to at most limit bytes, never within a character.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
