package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"go.mau.fi/util/dbutil"

	"moothall/bridge/queue"
)

// waitAgain is how long a room waits when its next message needs a row of
// another room that is not sent yet.
const waitAgain = time.Second

// addMessages adds outbox rows inside a write and makes their rooms due. Rows
// whose key exists are left alone.
func (s *Store) addMessages(ctx context.Context, now time.Time, out []queue.Message) error {
	for start := 0; start < len(out); start += acceptChunk {
		if err := s.addMessageChunk(ctx, now, out[start:min(start+acceptChunk, len(out))]); err != nil {
			return fmt.Errorf("add messages: %w", err)
		}
	}
	return nil
}

func (s *Store) addMessageChunk(ctx context.Context, now time.Time, out []queue.Message) error {
	const cols = 8
	args := make([]any, 0, cols*len(out))
	for _, m := range out {
		created := m.Created
		if created.IsZero() {
			created = s.orNow(now)
		}
		args = append(args, m.Key, m.Room, m.Root, string(m.Part), m.Ref, clean(string(m.Content)), m.WaitsFor, toMS(created))
	}
	type added struct {
		room string
		due  int64
	}
	got, err := returning(ctx, s, func(row dbutil.Scannable) (a added, err error) {
		err = row.Scan(&a.room, &a.due)
		return a, err
	}, `INSERT INTO outbox (key, room, root, part, ref, content, waits_for, created) VALUES `+s.values(len(out), cols)+`
		ON CONFLICT (key) DO NOTHING RETURNING room, created`, args...)
	if err != nil {
		return err
	}
	for _, a := range got {
		touch(ctx, queue.ClassOutbox, a.room, a.due)
	}
	return nil
}

// storedMessage is an outbox row with what the port does not show.
type storedMessage struct {
	queue.Message
	state     int
	notBefore int64
}

// dropWaiting is why a row is dropped whose WaitsFor was.
const dropWaiting = "waits for a dropped row"

const messageColumns = `id, key, room, root, part, ref, content, waits_for, event_id, first_try, created, attempts, state, not_before`

func scanMessage(row dbutil.Scannable) (m storedMessage, err error) {
	var first, created int64
	var content string
	err = row.Scan(&m.ID, &m.Key, &m.Room, &m.Root, &m.Part, &m.Ref, &content, &m.WaitsFor, &m.EventID,
		&first, &created, &m.Attempts, &m.state, &m.notBefore)
	m.FirstTry, m.Created, m.Content = fromMS(first), fromMS(created), rawJSON(content)
	return m, err
}

// NextMessage implements [queue.Outbox]. A row that waits for one that was
// dropped, or that never was, is dropped too.
func (r *Rows) NextMessage(ctx context.Context, now time.Time) (queue.Message, bool, error) {
	m, ok, err := r.nextMessage(ctx, now)
	if err != nil {
		return queue.Message{}, false, fmt.Errorf("next message: %w", err)
	}
	return m, ok, nil
}

func (r *Rows) nextMessage(ctx context.Context, now time.Time) (none queue.Message, ok bool, err error) {
	l, err := lane(ctx, queue.ClassOutbox)
	if err != nil {
		return none, false, err
	}
	for {
		m, err := scanMessage(r.s.read(ctx).QueryRowContext(ctx,
			`SELECT `+messageColumns+` FROM outbox WHERE room=$1 AND state=0 ORDER BY id LIMIT 1`, l.Key))
		if errors.Is(err, sql.ErrNoRows) || err == nil && m.notBefore > toMS(now) {
			return none, false, nil
		}
		if err != nil {
			return none, false, err
		}
		if m.WaitsFor != "" {
			target, err := r.message(ctx, `key=$1`, m.WaitsFor)
			switch {
			case errors.Is(err, queue.ErrNotFound), err == nil && target.state == rowBad:
				if err := r.Drop(ctx, m.ID, dropWaiting, now); err != nil {
					return none, false, err
				}
				continue
			case err != nil:
				return none, false, err
			case target.state == rowNew:
				return none, false, r.putOff(ctx, m.ID, now.Add(waitAgain))
			}
			m.Target = target.EventID
		}
		if m.FirstTry.IsZero() {
			if err := r.firstTry(ctx, m.ID, now); err != nil {
				return none, false, err
			}
			m.FirstTry = fromMS(toMS(now))
		}
		return m.Message, true, nil
	}
}

func (r *Rows) firstTry(ctx context.Context, id int64, now time.Time) error {
	return r.s.write(ctx, "first_try", func(ctx context.Context) error {
		_, err := r.s.exec(ctx, `UPDATE outbox SET first_try=$1 WHERE id=$2 AND first_try=0`, toMS(now), id)
		return err
	})
}

func (r *Rows) putOff(ctx context.Context, id int64, at time.Time) error {
	return r.s.write(ctx, "put_off", func(ctx context.Context) error {
		_, err := r.s.exec(ctx, `UPDATE outbox SET not_before=$1 WHERE id=$2 AND state=0`, toMS(at), id)
		return err
	})
}

// Sent implements [queue.Outbox]. A row that ended before is left alone.
func (r *Rows) Sent(ctx context.Context, id int64, event string, now time.Time) error {
	return r.s.write(ctx, "sent", func(ctx context.Context) error {
		return r.s.changeMessage(ctx, id, `state=1, event_id=$2, done_at=$3`, event, toMS(now))
	})
}

// RetryMessage implements [queue.Outbox].
func (r *Rows) RetryMessage(ctx context.Context, id int64, at time.Time) error {
	return r.s.write(ctx, "retry_message", func(ctx context.Context) error {
		return r.s.changeMessage(ctx, id, `attempts=attempts+1, not_before=$2`, toMS(at))
	})
}

// Drop implements [queue.Outbox]. A row that ended before is left alone.
func (r *Rows) Drop(ctx context.Context, id int64, why string, now time.Time) error {
	return r.s.write(ctx, "drop_message", func(ctx context.Context) error {
		return r.s.changeMessage(ctx, id, `state=2, note=$2, done_at=$3`, clean(why), toMS(now))
	})
}

// Revive implements [queue.Outbox].
func (r *Rows) Revive(ctx context.Context, room string, since, now time.Time) error {
	return r.s.write(ctx, "revive", func(ctx context.Context) error {
		n, err := r.s.exec(ctx, `UPDATE outbox SET state=0, note='', done_at=0, first_try=0, attempts=0
			WHERE room=$1 AND state=2 AND note IN ($2, $3) AND done_at>=$4
			AND (part<>$5 OR key LIKE 'ended/%' OR key LIKE 'result/%' OR key LIKE 'settled/%')`,
			room, queue.DropRefused, dropWaiting, toMS(since), string(queue.PartMessage))
		if err != nil || n == 0 {
			return err
		}
		touch(ctx, queue.ClassOutbox, room, toMS(now))
		return nil
	})
}

// changeMessage changes an unsent row; its id is $1 in set.
func (s *Store) changeMessage(ctx context.Context, id int64, set string, args ...any) error {
	n, err := s.exec(ctx, `UPDATE outbox SET `+set+` WHERE id=$1 AND state=0`, append([]any{id}, args...)...)
	if err == nil && n == 0 {
		err = s.mustExist(ctx, `SELECT COUNT(*) FROM outbox WHERE id=$1`, id)
	}
	return err
}

// MessageByEvent implements [queue.Outbox].
func (r *Rows) MessageByEvent(ctx context.Context, room, event string) (queue.Message, error) {
	m, err := r.message(ctx, `event_id=$1 AND event_id<>'' AND room=$2`, event, room)
	return m.Message, err
}

// MessageByKey implements [queue.Outbox].
func (r *Rows) MessageByKey(ctx context.Context, key string) (queue.Message, error) {
	m, err := r.message(ctx, `key=$1`, key)
	return m.Message, err
}

func (r *Rows) message(ctx context.Context, where string, args ...any) (storedMessage, error) {
	m, err := scanMessage(r.s.read(ctx).QueryRowContext(ctx, `SELECT `+messageColumns+` FROM outbox WHERE `+where, args...))
	if err != nil {
		return storedMessage{}, notFound("message", err)
	}
	return m, nil
}

// CardsBegun implements [queue.Outbox].
func (r *Rows) CardsBegun(ctx context.Context, room string, since time.Time) (bool, error) {
	var n int
	err := r.s.read(ctx).QueryRowContext(ctx, `SELECT COUNT(*) FROM outbox
		WHERE room=$1 AND part='card' AND (state=0 OR state=1 AND done_at>$2)`, room, toMS(since)).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("cards begun: %w", err)
	}
	return n > 0, nil
}
