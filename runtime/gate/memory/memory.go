// Package memory is a [gate.Ledger] in memory, for development and tests.
//
// It behaves as the store does, to the millisecond, and forgets everything when
// the process ends: nothing that a person approved survives a restart. Each step
// is one critical section; a step that returns an error has changed nothing. It
// reads no clock, knows no leases, and what it is given and gives are copies.
package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"moothall/runtime/gate"
)

// The kinds of follow-up row that are reported to [Ledger.OnFollowUp].
const (
	KindAnnounce = "announce" // an approval waits
	KindExpire   = "expire"   // its deadline has to be acted on when it comes
	KindShow     = "show"     // an approval has moved on
	KindResume   = "resume"   // an approved call has to run
	KindReport   = "report"   // an execution has ended or was settled
)

// How many records a list gives when it is not told.
const (
	defaultList   = 100
	defaultEvents = 1000
)

// Ledger keeps everything in maps. The zero value is not usable; make it with
// [New]. It is safe for concurrent use.
type Ledger struct {
	// OnFollowUp, if set, is told the follow-up rows of a step after it was
	// taken, in order, outside the lock. ref is the id of the approval or
	// execution. Set it before the first step.
	OnFollowUp func(kind, ref string)

	mu         sync.Mutex
	byKey      map[string]string // key to execution id
	executions map[string]gate.Execution
	approvals  map[string]gate.Approval
	exeOrder   []string
	aprOrder   []string
	events     [][]kept // in pages, so that a long trail is not copied to grow
}

var _ gate.Ledger = (*Ledger)(nil)

// Volatile implements [gate.Volatile].
func (l *Ledger) Volatile() bool { return true }

// New makes an empty ledger.
func New() *Ledger {
	return &Ledger{
		byKey: make(map[string]string), executions: make(map[string]gate.Execution), approvals: make(map[string]gate.Approval),
	}
}

// errNotText is an input that could not be kept byte for byte in a database.
var errNotText = errors.New("input is not UTF-8 text")

func plain(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// clean makes free text what the databases would make of it.
func clean(s string) string {
	if plain(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func ms(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMilli(t.UnixMilli()).UTC()
}

// followUp is one row that a step would write.
type followUp struct{ kind, ref string }

// step runs f under the lock and reports what follows.
func (l *Ledger) step(ctx context.Context, what string, f func() ([]followUp, error)) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	rows, err := l.locked(f)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if l.OnFollowUp != nil {
		for _, r := range rows {
			l.OnFollowUp(r.kind, r.ref)
		}
	}
	return nil
}

func (l *Ledger) locked(f func() ([]followUp, error)) ([]followUp, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f()
}

// audit adds a row. It comes last in a step, since it is what can fail.
func (l *Ledger) audit(ev gate.Event) error {
	c, err := keep(ev)
	if err != nil {
		return err
	}
	const page = 64
	if n := len(l.events); n == 0 || len(l.events[n-1]) == page {
		l.events = append(l.events, make([]kept, 0, page))
	}
	last := &l.events[len(l.events)-1]
	*last = append(*last, c)
	return nil
}

// kept is an event as it is held: nothing that the caller could still change.
// Data of plain words, numbers and times is held beside it and encoded when it is
// asked for, anything else at once.
type kept struct {
	gate.Event
	words []word
}

type word struct {
	name string
	v    any
}

func keep(ev gate.Event) (kept, error) {
	words := make([]word, 0, len(ev.Data))
	for name, v := range ev.Data {
		c, ok := settled(v)
		if !ok {
			c, err := copyEvent(ev)
			return kept{Event: c}, err
		}
		words = append(words, word{name, c})
	}
	ev.At, ev.Data = ms(ev.At), nil
	ev.Actor.Name, ev.Actor.Attributes = "", nil
	return kept{ev, words}, nil
}

// settled gives v as something that nobody can change and that can be encoded
// later; ok is false if it is not known to be so.
func settled(v any) (c any, ok bool) {
	switch v := v.(type) {
	case string, bool, int, int64:
		return v, true
	case []string:
		return slices.Clone(v), true
	case time.Time:
		const last = 9999 // year that can be encoded
		y := v.Year()
		return v, y >= 0 && y <= last && v.Location() == time.UTC
	}
	k := reflect.ValueOf(v).Kind()
	return v, k == reflect.String || k == reflect.Bool || k == reflect.Int || k == reflect.Int64
}

// give is the event as it would come out of a database.
func (k kept) give() (gate.Event, error) {
	ev := k.Event
	if k.words != nil {
		ev.Data = make(map[string]any, len(k.words))
		for _, w := range k.words {
			ev.Data[w.name] = w.v
		}
	}
	return copyEvent(ev)
}

// copyEvent gives what is left of an event in a database.
func copyEvent(ev gate.Event) (gate.Event, error) {
	data := ev.Data
	ev.At, ev.Data = ms(ev.At), nil
	ev.Actor.Name, ev.Actor.Attributes = "", nil
	if len(data) == 0 {
		return ev, nil
	}
	b, err := json.Marshal(data)
	if err != nil {
		return ev, fmt.Errorf("audit: %w", err)
	}
	if err := json.Unmarshal(b, &ev.Data); err != nil {
		return ev, fmt.Errorf("audit: %w", err)
	}
	return ev, nil
}

// Record implements [gate.Ledger].
func (l *Ledger) Record(ctx context.Context, ev gate.Event) error {
	return l.step(ctx, "record", func() ([]followUp, error) { return nil, l.audit(ev) })
}

// Events implements [gate.Ledger].
func (l *Ledger) Events(ctx context.Context, f gate.EventFilter) ([]gate.Event, error) {
	var out []gate.Event
	err := l.step(ctx, "events", func() ([]followUp, error) {
		for ev := range l.trail() {
			if len(out) >= orDefault(f.Limit, defaultEvents) {
				break
			}
			if not(f.ExecutionID, ev.ExecutionID) || not(f.ApprovalID, ev.ApprovalID) ||
				(len(f.Types) > 0 && !slices.Contains(f.Types, ev.Type)) {
				continue
			}
			c, err := ev.give()
			if err != nil {
				return nil, err
			}
			out = append(out, c)
		}
		return nil, nil
	})
	return out, err
}

// trail goes through the events in the order they were written.
func (l *Ledger) trail() iter.Seq[kept] {
	return func(yield func(kept) bool) {
		for _, page := range l.events {
			for _, ev := range page {
				if !yield(ev) {
					return
				}
			}
		}
	}
}

func orDefault(n, def int) int {
	if n <= 0 {
		return def
	}
	return n
}

// not reports whether a filter that is set misses v.
func not(filter, v string) bool { return filter != "" && filter != v }
