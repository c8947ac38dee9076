package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mau.fi/util/dbutil"

	"moothall/bridge/queue"
)

// The states of inbox, work and outbox rows. 1 is the good end, 2 the other.
const (
	rowNew  = 0
	rowDone = 1
	rowBad  = 2
)

const (
	acceptChunk = 100       // rows per statement
	badBody     = 64 * 1024 // bytes kept of what could not be understood
)

// inboxRow is an event ready to be stored.
type inboxRow struct {
	queue.Event
	state int
}

// Accept implements [queue.Inbox]. An event without id or room, or whose id or
// room is no text, is kept aside like the bad bodies and does not count as new.
func (r *Rows) Accept(ctx context.Context, events []queue.Event, bad []json.RawMessage, now time.Time) (int, error) {
	rows := make([]inboxRow, 0, len(events)+len(bad))
	for _, e := range events {
		row := inboxRow{Event: e}
		row.Sender, row.Type = clean(e.Sender), clean(e.Type)
		row.ReceivedAt = e.ReceivedAt
		if row.ReceivedAt.IsZero() {
			row.ReceivedAt = now
		}
		if e.Room == "" || e.ID == "" || !plain(e.Room) || !plain(e.ID) {
			row = badRow(e.Body, now)
			if e.ID != "" && plain(e.ID) {
				row.ID = e.ID
			}
		}
		rows = append(rows, row)
	}
	for _, body := range bad {
		rows = append(rows, badRow(body, now))
	}
	if len(rows) == 0 {
		return 0, nil
	}
	var fresh int
	err := r.s.write(ctx, "accept", func(ctx context.Context) error {
		fresh = 0
		for start := 0; start < len(rows); start += acceptChunk {
			n, err := r.s.acceptChunk(ctx, rows[start:min(start+acceptChunk, len(rows))])
			if err != nil {
				return err
			}
			fresh += n
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return fresh, nil
}

func badRow(body json.RawMessage, now time.Time) inboxRow {
	sum := sha256.Sum256(body)
	return inboxRow{state: rowBad, Event: queue.Event{
		ID:         "bad:" + hex.EncodeToString(sum[:]),
		ReceivedAt: now,
		Body:       body[:min(len(body), badBody)],
	}}
}

func (s *Store) acceptChunk(ctx context.Context, rows []inboxRow) (fresh int, err error) {
	const cols = 8
	args := make([]any, 0, cols*len(rows))
	for _, e := range rows {
		args = append(args, e.ID, e.Room, e.Sender, e.Type, toMS(e.SentAt), toMS(e.ReceivedAt), e.state, clean(string(e.Body)))
	}
	got, err := returning(ctx, s, func(row dbutil.Scannable) (e inboxRow, err error) {
		var at int64
		err = row.Scan(&e.Room, &e.state, &at)
		e.ReceivedAt = fromMS(at)
		return e, err
	}, `INSERT INTO inbox (event_id, room, sender, type, sent_at, received_at, state, body) VALUES `+
		s.values(len(rows), cols)+` ON CONFLICT (event_id) DO NOTHING RETURNING room, state, received_at`, args...)
	if err != nil {
		return 0, err
	}
	for _, e := range got {
		if e.state == rowNew {
			fresh++
			touch(ctx, queue.ClassRoom, e.Room, toMS(e.ReceivedAt))
		}
	}
	return fresh, nil
}

// values writes "($1,$2),($3,$4)" for so many rows of so many columns. SQLite
// gets "?" instead: its driver looks numbered names up one by one in a list,
// which is quadratic in the number of parameters.
func (s *Store) values(rows, cols int) string {
	var b strings.Builder
	n := 0
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('(')
		for j := range cols {
			if j > 0 {
				b.WriteByte(',')
			}
			if !s.postgres() {
				b.WriteByte('?')
				continue
			}
			n++
			fmt.Fprintf(&b, "$%d", n)
		}
		b.WriteByte(')')
	}
	return b.String()
}

const eventColumns = `seq, event_id, room, sender, type, sent_at, received_at, body, attempts, not_before`

func scanEvent(row dbutil.Scannable) (e queue.Event, notBefore int64, err error) {
	var sent, received int64
	var body string
	err = row.Scan(&e.Seq, &e.ID, &e.Room, &e.Sender, &e.Type, &sent, &received, &body, &e.Attempts, &notBefore)
	e.SentAt, e.ReceivedAt, e.Body = fromMS(sent), fromMS(received), rawJSON(body)
	return e, notBefore, err
}

// NextEvent implements [queue.Inbox].
func (r *Rows) NextEvent(ctx context.Context, now time.Time) (queue.Event, bool, error) {
	l, err := lane(ctx, queue.ClassRoom)
	if err != nil {
		return queue.Event{}, false, fmt.Errorf("next event: %w", err)
	}
	e, notBefore, err := scanEvent(r.s.read(ctx).QueryRowContext(ctx,
		`SELECT `+eventColumns+` FROM inbox WHERE room=$1 AND state=0 ORDER BY seq LIMIT 1`, l.Key))
	if errors.Is(err, sql.ErrNoRows) || err == nil && notBefore > toMS(now) {
		return queue.Event{}, false, nil
	}
	if err != nil {
		return queue.Event{}, false, fmt.Errorf("next event: %w", err)
	}
	return e, true, nil
}

// Event gives an inbox row by its event id, whatever became of it, with its body
// if that was kept; [queue.ErrNotFound] if there is none in the room.
func (r *Rows) Event(ctx context.Context, room, event string) (queue.Event, error) {
	e, _, err := scanEvent(r.s.read(ctx).QueryRowContext(ctx,
		`SELECT `+eventColumns+` FROM inbox WHERE event_id=$1 AND room=$2`, event, room))
	if err != nil {
		return queue.Event{}, notFound("event", err)
	}
	return e, nil
}

// Route implements [queue.Inbox]. A row that was routed before is left alone.
func (r *Rows) Route(ctx context.Context, seq int64, d queue.Routed, now time.Time) error {
	return r.s.write(ctx, "route", func(ctx context.Context) error {
		drop := ", body=''"
		if d.Keep {
			drop = ""
		}
		n, err := r.s.exec(ctx, `UPDATE inbox SET state=1, root=$1, note=$2, done_at=$3`+drop+` WHERE seq=$4 AND state=0`,
			d.Root, clean(d.Note), toMS(now), seq)
		if err != nil {
			return err
		}
		if n == 0 {
			return r.s.mustExist(ctx, `SELECT COUNT(*) FROM inbox WHERE seq=$1`, seq)
		}
		return r.s.addWork(ctx, now, d.Work)
	})
}

// RetryEvent implements [queue.Inbox].
func (r *Rows) RetryEvent(ctx context.Context, seq int64, at time.Time) error {
	return r.s.write(ctx, "retry_event", func(ctx context.Context) error {
		n, err := r.s.exec(ctx, `UPDATE inbox SET attempts=attempts+1, not_before=$1 WHERE seq=$2 AND state=0`, toMS(at), seq)
		if err == nil && n == 0 {
			err = r.s.mustExist(ctx, `SELECT COUNT(*) FROM inbox WHERE seq=$1`, seq)
		}
		return err
	})
}

// Root implements [queue.Inbox].
func (r *Rows) Root(ctx context.Context, room, event string) (root string, err error) {
	err = r.s.read(ctx).QueryRowContext(ctx, `SELECT root FROM inbox WHERE event_id=$1 AND room=$2 AND state=1`, event, room).Scan(&root)
	if err != nil {
		return "", notFound("root", err)
	}
	return root, nil
}

// Wipe implements [queue.Inbox]. An unknown event is no error.
func (r *Rows) Wipe(ctx context.Context, room, event string) error {
	return r.s.write(ctx, "wipe", func(ctx context.Context) error {
		_, err := r.s.exec(ctx, `UPDATE inbox SET body='' WHERE event_id=$1 AND room=$2`, event, room)
		return err
	})
}

// Backlog implements [queue.Inbox].
func (r *Rows) Backlog(ctx context.Context, now time.Time) (n int, oldest time.Duration, err error) {
	var at sql.NullInt64
	err = r.s.read(ctx).QueryRowContext(ctx, `SELECT COUNT(*), MIN(received_at) FROM inbox WHERE state=0`).Scan(&n, &at)
	if err != nil {
		return 0, 0, fmt.Errorf("backlog: %w", err)
	}
	if at.Valid {
		oldest = max(0, now.Sub(time.UnixMilli(at.Int64)))
	}
	return n, oldest, nil
}

// mustExist tells a repeat, which is no error, from a row that never was.
func (s *Store) mustExist(ctx context.Context, count string, id any) error {
	var n int
	if err := s.one(ctx, count, id).Scan(&n); err != nil {
		return err
	}
	if n == 0 {
		return queue.ErrNotFound
	}
	return nil
}

func notFound(what string, err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return queue.ErrNotFound
	}
	return fmt.Errorf("%s: %w", what, err)
}
