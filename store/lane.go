package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"moothall/bridge/queue"
)

// Rows implements [queue.Rows].
type Rows struct{ s *Store }

var _ queue.Rows = (*Rows)(nil)

// Claim implements [queue.Lanes]. On PostgreSQL it passes over a lane that is
// being written to at that moment, and so may find none while one is due; that
// write's commit wakes the class.
func (r *Rows) Claim(ctx context.Context, c queue.Class, owner string, now time.Time, ttl time.Duration) (queue.Lease, bool, error) {
	skip := ""
	if r.s.postgres() {
		skip = " FOR UPDATE SKIP LOCKED"
	}
	l := queue.Lease{Class: c, Until: fromMS(toMS(now.Add(ttl)))}
	found := false
	err := r.s.writeUnder(ctx, "lane_claim", l, false, func(ctx context.Context) error {
		err := r.s.one(ctx, `UPDATE lane SET owner=$1, epoch=epoch+1, lease_until=$2
			WHERE class=$3 AND key=(SELECT key FROM lane WHERE class=$3 AND due<=$4 AND lease_until<=$4
				ORDER BY due LIMIT 1`+skip+`)
			RETURNING key, epoch`,
			owner, toMS(l.Until), string(c), toMS(now)).Scan(&l.Key, &l.Epoch)
		found = err == nil
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err != nil || !found {
		return queue.Lease{}, false, err
	}
	return l, true, nil
}

// Renew implements [queue.Lanes].
func (r *Rows) Renew(ctx context.Context, l queue.Lease, now time.Time, ttl time.Duration) (queue.Lease, error) {
	until := toMS(now.Add(ttl))
	err := r.s.writeUnder(ctx, "lane_renew", l, false, func(ctx context.Context) error {
		n, err := r.s.exec(ctx, `UPDATE lane SET lease_until=$1 WHERE class=$2 AND key=$3 AND epoch=$4 AND owner IS NOT NULL`,
			until, string(l.Class), l.Key, l.Epoch)
		if err == nil && n == 0 {
			err = queue.ErrFenced
		}
		return err
	})
	if err != nil {
		return queue.Lease{}, err
	}
	l.Until = fromMS(until)
	return l, nil
}

// Release implements [queue.Lanes].
func (r *Rows) Release(ctx context.Context, l queue.Lease) error {
	head, ok := headDue(l.Class)
	if !ok {
		return fmt.Errorf("release: no class %q", string(l.Class))
	}
	return r.s.writeUnder(ctx, "lane_release", l, false, func(ctx context.Context) error {
		if r.s.postgres() {
			// The lane is locked by a statement of its own: only the next one sees
			// the rows of a writer this one had to wait for. Without it a wake-up
			// could be lost.
			if err := r.s.holdFence(ctx, l); err != nil {
				return ignore(err, queue.ErrFenced)
			}
		}
		var due sql.NullInt64
		err := r.s.one(ctx, `UPDATE lane SET owner=NULL, lease_until=0, due=(`+head+`)
			WHERE class=$1 AND key=$2 AND epoch=$3 AND owner IS NOT NULL RETURNING due`,
			string(l.Class), l.Key, l.Epoch).Scan(&due)
		if err == nil && due.Valid {
			wake(ctx, l.Class)
			if st, ok := ctx.Value(txnStateKey{}).(*txnState); ok {
				return r.s.notify(ctx, st)
			}
		}
		return ignore(err, sql.ErrNoRows)
	})
}

// headDue is the query for when the oldest row of lane ($1, $2) may be handled.
func headDue(c queue.Class) (string, bool) {
	switch c {
	case queue.ClassRoom:
		return `SELECT CASE WHEN not_before>received_at THEN not_before ELSE received_at END
			FROM inbox WHERE room=$2 AND state=0 ORDER BY seq LIMIT 1`, true
	case queue.ClassThread, queue.ClassControl:
		return `SELECT CASE WHEN not_before>created THEN not_before ELSE created END
			FROM work WHERE class=$1 AND lane=$2 AND state=0 ORDER BY id LIMIT 1`, true
	case queue.ClassOutbox:
		return `SELECT CASE WHEN not_before>created THEN not_before ELSE created END
			FROM outbox WHERE room=$2 AND state=0 ORDER BY id LIMIT 1`, true
	}
	return "", false
}

// ReleaseAll implements [queue.Lanes]. Epochs stay, so leases from before remain
// fenced.
func (r *Rows) ReleaseAll(ctx context.Context) error {
	return r.s.writeUnder(ctx, "lane_release_all", queue.Lease{}, false, func(ctx context.Context) error {
		_, err := r.s.exec(ctx, `UPDATE lane SET owner=NULL, lease_until=0 WHERE owner IS NOT NULL OR lease_until<>0`)
		return err
	})
}

// NextDue implements [queue.Lanes]. A lane that is held counts from the end of
// its lease: its holder may be dead.
func (r *Rows) NextDue(ctx context.Context, c queue.Class) (time.Time, bool, error) {
	var due sql.NullInt64
	err := r.s.read(ctx).QueryRowContext(ctx,
		`SELECT MIN(CASE WHEN lease_until>due THEN lease_until ELSE due END) FROM lane WHERE class=$1 AND due IS NOT NULL`,
		string(c)).Scan(&due)
	if err != nil {
		return time.Time{}, false, fmt.Errorf("next due: %w", err)
	}
	// Not fromMS: a lane may be due at the very beginning of time.
	return time.UnixMilli(due.Int64).UTC(), due.Valid, nil
}

// lane gives the key of the lease in ctx, which must be of one of the classes.
func lane(ctx context.Context, classes ...queue.Class) (queue.Lease, error) {
	l, ok := queue.LeaseFrom(ctx)
	if !ok {
		return l, errors.New("no lease in ctx")
	}
	if slices.Contains(classes, l.Class) {
		return l, nil
	}
	return l, fmt.Errorf("the lease in ctx is of class %q", string(l.Class))
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}
