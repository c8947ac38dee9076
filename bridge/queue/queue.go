// Package queue holds the rows that carry work through the bridge and the ports
// that keep them: the inbox (events as they came), work (what follows from an
// event or a state change) and the outbox (what the room will be told).
//
// Rows are handled by lane: a lane is a strand of rows that must be handled one
// at a time and in order (a room's events, a thread's work, a room's messages).
// Whoever handles a lane holds its [Lease]; every write made under a lease is
// fenced by its epoch, so a process that was paused and lost the lane cannot
// write any more and gets [ErrFenced]. Delivery is at least once: a row is
// handled again unless its Done (or Sent, or Routed) was committed, so handlers
// bear a repeat.
//
// The package is a leaf: plain types, no I/O. Times are stored as Unix
// milliseconds, UTC. Implementations are safe for concurrent use.
package queue

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// Class groups lanes that one pool of workers serves.
type Class string

// The classes of lanes and what their keys are.
const (
	ClassRoom    Class = "room"    // inbox rows of a room; key: room id
	ClassThread  Class = "thread"  // work of one conversation; key: see gate lanes
	ClassControl Class = "control" // work that never waits for a busy thread; key: approval id or cause
	ClassOutbox  Class = "outbox"  // messages to a room; key: room id
)

// ErrFenced is returned by every write whose lease was lost: abandon the row,
// somebody else has it.
var ErrFenced = errors.New("lease lost")

// ErrNotFound is returned by look-ups of a single row.
var ErrNotFound = errors.New("no such row")

// Lease is the right to handle one lane. Epoch grows with every claim.
type Lease struct {
	Class Class
	Key   string
	Epoch int64
	Until time.Time
}

type leaseKey struct{}

// WithLease returns a context under which every store write is fenced by l.
func WithLease(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// LeaseFrom gives the lease in ctx, if there is one.
func LeaseFrom(ctx context.Context) (Lease, bool) {
	l, ok := ctx.Value(leaseKey{}).(Lease)
	return l, ok
}

// Lanes hands out leases.
type Lanes interface {
	// Claim takes the lane of class c that has been due longest and that nobody
	// holds at now. ok is false when there is none.
	Claim(ctx context.Context, c Class, owner string, now time.Time, ttl time.Duration) (l Lease, ok bool, err error)
	// Renew extends l to now+ttl, or returns [ErrFenced].
	Renew(ctx context.Context, l Lease, now time.Time, ttl time.Duration) (Lease, error)
	// Release gives l back and sets when its lane is due again from the rows
	// that are left. Releasing a lost lease does nothing.
	Release(ctx context.Context, l Lease) error
	// ReleaseAll frees every lease at once. Only for a process that knows it is
	// alone with the database, at its start.
	ReleaseAll(ctx context.Context) error
	// NextDue says when a lane of class c that nobody holds becomes due; ok is false when
	// none will.
	NextDue(ctx context.Context, c Class) (due time.Time, ok bool, err error)
}

// Event is an inbox row: one event as the homeserver sent it.
type Event struct {
	Seq        int64 // order of arrival
	ID         string
	Room       string
	Sender     string
	Type       string
	SentAt     time.Time // origin_server_ts: never trusted for order or security
	ReceivedAt time.Time
	Body       json.RawMessage // the whole event; emptied once it is of no use
	Attempts   int
}

// Routed is what became of an inbox row.
type Routed struct {
	Root string // thread root, empty if the event is in no thread of ours
	Note string // why it was ignored, or what it became; a word, never content
	Keep bool   // keep the body: a later step or a reply may need it
	Work []Work // rows that follow, written in the same transaction
}

// Inbox keeps events from the moment before the 200 until they are routed.
type Inbox interface {
	// Accept stores events in one transaction and wakes their rooms. Events
	// already known by id are left alone. bad are bodies that could not be
	// understood; they are kept aside. It returns how many were new.
	Accept(ctx context.Context, events []Event, bad []json.RawMessage, now time.Time) (fresh int, err error)
	// NextEvent gives the oldest unrouted row of the lane in ctx's lease. ok is
	// false when there is none that is due.
	NextEvent(ctx context.Context, now time.Time) (e Event, ok bool, err error)
	// Route ends an inbox row together with what follows from it.
	Route(ctx context.Context, seq int64, r Routed, now time.Time) error
	// RetryEvent puts the row (and so its room) off until at.
	RetryEvent(ctx context.Context, seq int64, at time.Time) error
	// Root gives the thread root stored for an event, [ErrNotFound] if the event
	// is unknown or not routed.
	Root(ctx context.Context, room, event string) (string, error)
	// Latest gives the newest event routed into the thread of root, "" if none.
	Latest(ctx context.Context, room, root string) (event string, err error)
	// Wipe removes the text of an event, keeping its row.
	Wipe(ctx context.Context, room, event string) error
	// Backlog counts unrouted rows and tells the age of the oldest.
	Backlog(ctx context.Context, now time.Time) (n int, oldest time.Duration, err error)
}

// Kind is what a work row asks for.
type Kind string

// The kinds of work. Ref names the row or event it is about.
const (
	KindMessage  Kind = "message"  // a message to us: run its command; ref: event id
	KindInvite   Kind = "invite"   // we were invited; ref: event id
	KindReaction Kind = "reaction" // somebody reacted; ref: event id
	KindLeft     Kind = "left"     // somebody left, or the bot was removed; ref: event id
	KindRedacted Kind = "redacted" // a message was deleted; ref: event id of the redaction
	KindAnswer   Kind = "answer"   // a control command or a reply to a card; ref: event id
	KindAnnounce Kind = "announce" // post the card; ref: approval id
	KindShow     Kind = "show"     // bring the card up to date; ref: approval id
	KindExpire   Kind = "expire"   // the deadline has come; ref: approval id
	KindResume   Kind = "resume"   // run what was approved; ref: approval id
	KindReport   Kind = "report"   // tell how an execution ended; ref: execution id
)

// Work is a work row.
type Work struct {
	ID    int64
	Key   string // unique: made from the cause, so a repeat adds nothing
	Class Class
	Lane  string
	Kind  Kind
	Ref   string
	Data  json.RawMessage // small, may be empty
	// NotBefore is when it may be handled; zero: at once. A lane waits for its
	// oldest row.
	NotBefore time.Time
	Created   time.Time
	Attempts  int
}

// WorkRows keeps work until it is done.
type WorkRows interface {
	// AddWork adds rows (those whose key exists are left alone).
	AddWork(ctx context.Context, rows ...Work) error
	// NextWork gives the oldest undone row of the lane in ctx's lease, if it is
	// due at now.
	NextWork(ctx context.Context, now time.Time) (w Work, ok bool, err error)
	// DoneWork ends a row together with what it caused, and empties its data.
	DoneWork(ctx context.Context, id int64, out []Message, more []Work, now time.Time) error
	// RetryWork counts an attempt and puts the row off until at. why is a short
	// word for the log and for people who look, never content.
	RetryWork(ctx context.Context, id int64, at time.Time, why string) error
	// DropWork ends a row that failed for good, with what the room is told.
	DropWork(ctx context.Context, id int64, why string, out []Message, now time.Time) error
}

// Part is what an outbox row will become.
type Part string

// The parts.
const (
	PartMessage Part = "message" // Content as it is
	PartCard    Part = "card"    // the card of approval Ref, rendered when sent
	PartOutcome Part = "outcome" // an edit of the card of approval Ref to its present state
	PartUnknown Part = "unknown" // the notice that execution Ref's outcome is unknown
	PartReact   Part = "react"   // a reaction with key Content on the event of WaitsFor
	PartRedact  Part = "redact"  // a redaction of the event of WaitsFor
)

// Message is an outbox row: the intent to tell a room something.
type Message struct {
	ID   int64
	Key  string // unique: made from the cause; the transaction id is derived from it
	Room string
	Root string // thread root; empty: not in a thread
	Part Part
	Ref  string // approval or execution id, if any
	// Content is the event content of PartMessage, a JSON string for PartReact.
	Content json.RawMessage
	// WaitsFor is the key of another row whose event id this one needs. If that
	// row failed for good, so does this one.
	WaitsFor string
	EventID  string    // once sent
	Target   string    // event id of WaitsFor, filled in by NextMessage
	FirstTry time.Time // zero: never tried
	Created  time.Time
	Attempts int
}

// DropRefused is why a row is dropped that the homeserver refused for good, most
// often because we are not in the room.
const DropRefused = "refused"

// Outbox keeps what the rooms will be told, in order per room.
type Outbox interface {
	// NextMessage gives the oldest unsent row of the lane (room) in ctx's lease
	// if it is due at now, and records the first try before it returns.
	NextMessage(ctx context.Context, now time.Time) (m Message, ok bool, err error)
	// Sent ends a row with the event id it became.
	Sent(ctx context.Context, id int64, event string, now time.Time) error
	// RetryMessage counts an attempt and puts the row, and so the room's later
	// rows, off until at.
	RetryMessage(ctx context.Context, id int64, at time.Time) error
	// Drop ends a row that can never be sent; why is a short word.
	Drop(ctx context.Context, id int64, why string, now time.Time) error
	// Revive makes a room's rows that were dropped as [DropRefused] since then
	// unsent again, with what waited for them: we are back in the room. Cards,
	// their outcomes and how requests ended come back; small talk does not.
	Revive(ctx context.Context, room string, since, now time.Time) error
	// MessageByEvent finds the row that became an event of ours.
	MessageByEvent(ctx context.Context, room, event string) (Message, error)
	// MessageByKey finds a row by its key.
	MessageByKey(ctx context.Context, key string) (Message, error)
	// CardsBegun reports whether the room has an unsent card, or one sent after
	// since: a reaction to an unknown event may be for it.
	CardsBegun(ctx context.Context, room string, since time.Time) (bool, error)
}

// Notes remember small facts across restarts: what a person was told once, the
// sync position.
type Notes interface {
	// NoteOnce stores key and reports whether it was new.
	NoteOnce(ctx context.Context, key string, now time.Time) (fresh bool, err error)
	// Note gives the value of key, "" if there is none; SetNote stores it.
	Note(ctx context.Context, key string) (string, error)
	SetNote(ctx context.Context, key, value string) error
}

// Rows is everything the bridge keeps.
type Rows interface {
	Lanes
	Inbox
	WorkRows
	Outbox
	Notes
}
