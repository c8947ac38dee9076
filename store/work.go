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

// AddWork implements [queue.WorkRows].
func (r *Rows) AddWork(ctx context.Context, rows ...queue.Work) error {
	if len(rows) == 0 {
		return nil
	}
	return r.s.write(ctx, "add_work", func(ctx context.Context) error {
		return r.s.addWork(ctx, time.Time{}, rows)
	})
}

// addWork adds rows inside a write and makes their lanes due. now is the time
// of rows that name none.
func (s *Store) addWork(ctx context.Context, now time.Time, rows []queue.Work) error {
	for start := 0; start < len(rows); start += acceptChunk {
		if err := s.addWorkChunk(ctx, now, rows[start:min(start+acceptChunk, len(rows))]); err != nil {
			return fmt.Errorf("add work: %w", err)
		}
	}
	return nil
}

func (s *Store) addWorkChunk(ctx context.Context, now time.Time, rows []queue.Work) error {
	const cols = 8
	args := make([]any, 0, cols*len(rows))
	for _, w := range rows {
		if w.Class != queue.ClassThread && w.Class != queue.ClassControl {
			return fmt.Errorf("class %q holds no work", string(w.Class))
		}
		created := w.Created
		if created.IsZero() {
			created = s.orNow(now)
		}
		args = append(args, w.Key, string(w.Class), w.Lane, string(w.Kind), w.Ref, clean(string(w.Data)), toMS(w.NotBefore), toMS(created))
	}
	type added struct {
		class, lane string
		due         int64
	}
	got, err := returning(ctx, s, func(row dbutil.Scannable) (a added, err error) {
		err = row.Scan(&a.class, &a.lane, &a.due)
		return a, err
	}, `INSERT INTO work (key, class, lane, kind, ref, data, not_before, created) VALUES `+s.values(len(rows), cols)+`
		ON CONFLICT (key) DO NOTHING
		RETURNING class, lane, CASE WHEN not_before>0 THEN not_before ELSE created END`, args...)
	if err != nil {
		return err
	}
	for _, a := range got {
		touch(ctx, queue.Class(a.class), a.lane, a.due)
	}
	return nil
}

// NextWork implements [queue.WorkRows].
func (r *Rows) NextWork(ctx context.Context, now time.Time) (queue.Work, bool, error) {
	l, err := lane(ctx, queue.ClassThread, queue.ClassControl)
	if err != nil {
		return queue.Work{}, false, fmt.Errorf("next work: %w", err)
	}
	var w queue.Work
	var notBefore, created int64
	var data string
	err = r.s.read(ctx).QueryRowContext(ctx, `SELECT id, key, class, lane, kind, ref, data, not_before, created, attempts
		FROM work WHERE class=$1 AND lane=$2 AND state=0 ORDER BY id LIMIT 1`, string(l.Class), l.Key).
		Scan(&w.ID, &w.Key, &w.Class, &w.Lane, &w.Kind, &w.Ref, &data, &notBefore, &created, &w.Attempts)
	if errors.Is(err, sql.ErrNoRows) || err == nil && notBefore > toMS(now) {
		return queue.Work{}, false, nil
	}
	if err != nil {
		return queue.Work{}, false, fmt.Errorf("next work: %w", err)
	}
	w.NotBefore, w.Created, w.Data = fromMS(notBefore), fromMS(created), rawJSON(data)
	return w, true, nil
}

// DoneWork implements [queue.WorkRows]. A row that ended before is left alone
// and adds nothing.
func (r *Rows) DoneWork(ctx context.Context, id int64, out []queue.Message, more []queue.Work, now time.Time) error {
	return r.s.write(ctx, "done_work", func(ctx context.Context) error {
		ended, err := r.s.endWork(ctx, id, rowDone, "", now)
		if err != nil || !ended {
			return err
		}
		if err := r.s.addMessages(ctx, now, out); err != nil {
			return err
		}
		return r.s.addWork(ctx, now, more)
	})
}

// RetryWork implements [queue.WorkRows].
func (r *Rows) RetryWork(ctx context.Context, id int64, at time.Time, why string) error {
	return r.s.write(ctx, "retry_work", func(ctx context.Context) error {
		n, err := r.s.exec(ctx, `UPDATE work SET attempts=attempts+1, not_before=$1, note=$2 WHERE id=$3 AND state=0`,
			toMS(at), clean(why), id)
		if err == nil && n == 0 {
			err = r.s.mustExist(ctx, `SELECT COUNT(*) FROM work WHERE id=$1`, id)
		}
		return err
	})
}

// DropWork implements [queue.WorkRows]. A row that ended before is left alone
// and adds nothing.
func (r *Rows) DropWork(ctx context.Context, id int64, why string, out []queue.Message, now time.Time) error {
	return r.s.write(ctx, "drop_work", func(ctx context.Context) error {
		ended, err := r.s.endWork(ctx, id, rowBad, why, now)
		if err != nil || !ended {
			return err
		}
		return r.s.addMessages(ctx, now, out)
	})
}

// endWork ends a row and empties its data, which may hold text.
func (s *Store) endWork(ctx context.Context, id int64, state int, why string, now time.Time) (ended bool, err error) {
	n, err := s.exec(ctx, `UPDATE work SET state=$1, note=$2, done_at=$3, data='' WHERE id=$4 AND state=0`, state, clean(why), toMS(now), id)
	if err != nil || n > 0 {
		return n > 0, err
	}
	return false, s.mustExist(ctx, `SELECT COUNT(*) FROM work WHERE id=$1`, id)
}

// addWorkRows adds the rows that follow from a change of state at now.
func (s *Store) addWorkRows(ctx context.Context, now time.Time, rows ...queue.Work) error {
	return s.addWork(ctx, now, rows)
}
