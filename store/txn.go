package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mau.fi/util/dbutil"

	"moothall/bridge/queue"
)

// txnState is what a write transaction gathers and does last: the lanes that
// got something to do. They are written in the order of their keys right before
// the commit, so that two transactions never wait for each other's lanes.
type txnState struct {
	touched map[laneKey]int64 // when due, Unix ms
	woken   map[queue.Class]bool
}

type laneKey struct {
	class queue.Class
	key   string
}

func (k laneKey) compare(o laneKey) int {
	return cmp.Or(cmp.Compare(k.class, o.class), cmp.Compare(k.key, o.key))
}

type txnStateKey struct{}

// touch makes a lane due at ms at the latest. Only inside [Store.write].
func touch(ctx context.Context, class queue.Class, key string, ms int64) {
	st, ok := ctx.Value(txnStateKey{}).(*txnState)
	if !ok {
		return
	}
	k := laneKey{class, key}
	if have, ok := st.touched[k]; !ok || ms < have {
		st.touched[k] = ms
	}
}

// wake has the class told after the commit. Only inside [Store.write].
func wake(ctx context.Context, class queue.Class) {
	if st, ok := ctx.Value(txnStateKey{}).(*txnState); ok {
		st.woken[class] = true
	}
}

// write runs fn as one transaction, fenced by the lease in ctx. step names it
// for [Config.Fault]. Inside another write it joins that one.
//
// ctx counts until the transaction begins; after that the step is done whole or
// not at all, and a caller that goes away cannot leave it in doubt. On PostgreSQL
// fn is run again if it met a deadlock, so it must set its results, not add to them.
func (s *Store) write(ctx context.Context, step string, fn func(context.Context) error) error {
	lease, fenced := queue.LeaseFrom(ctx)
	return s.writeUnder(ctx, step, lease, fenced, fn)
}

func (s *Store) writeUnder(ctx context.Context, step string, lease queue.Lease, fenced bool, fn func(context.Context) error) error {
	if s.cfg.ReadOnly {
		return fmt.Errorf("%s: %s is open for reading only", step, s.name)
	}
	if _, inside := ctx.Value(txnStateKey{}).(*txnState); inside {
		return s.step(ctx, step, lease, fenced, fn)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	inner := context.WithoutCancel(ctx)
	if _, inside := s.db.Execable(ctx).(dbutil.Transaction); !inside {
		if err := s.stmts.prepare(inner, s.db.RawDB); err != nil {
			return fmt.Errorf("%s: prepare: %w", step, err)
		}
	}
	if s.postgres() {
		var cancel context.CancelFunc
		inner, cancel = context.WithTimeout(inner, postgresStep)
		defer cancel()
	}
	for try := 1; ; try++ {
		st := &txnState{touched: map[laneKey]int64{}, woken: map[queue.Class]bool{}}
		err := s.transact(context.WithValue(inner, txnStateKey{}, st), func(ctx context.Context) error {
			return s.step(ctx, step, lease, fenced, fn)
		})
		switch {
		case err == nil:
			if s.cfg.Wake != nil {
				for class := range st.woken {
					s.cfg.Wake(class)
				}
			}
			return nil
		case again(err) && try < postgresTries:
			continue
		}
		return fmt.Errorf("%s: %w", step, err)
	}
}

// transact is dbutil's DoTxn that also rolls back when fn panics: it would keep
// the transaction, and on SQLite that is the only one there can be.
func (s *Store) transact(ctx context.Context, fn func(context.Context) error) error {
	var panicked any
	err := s.db.DoTxn(ctx, nil, func(ctx context.Context) (err error) {
		defer func() {
			if panicked = recover(); panicked != nil {
				err = errors.New("panic in a transaction")
			}
		}()
		return fn(ctx)
	})
	if panicked != nil {
		panic(panicked)
	}
	return err
}

func (s *Store) step(ctx context.Context, step string, lease queue.Lease, fenced bool, fn func(context.Context) error) error {
	if fenced {
		// On PostgreSQL this look takes no lock; the lock is taken with those of
		// the other lanes at the end.
		if err := s.lookFence(ctx, lease); err != nil {
			return err
		}
	}
	if err := fn(ctx); err != nil {
		return err
	}
	if err := s.writeLanes(ctx, lease, fenced && s.postgres()); err != nil {
		return err
	}
	if s.cfg.Fault != nil {
		return s.cfg.Fault(step)
	}
	return nil
}

func (s *Store) lookFence(ctx context.Context, l queue.Lease) error {
	var n int
	err := s.one(ctx, `SELECT COUNT(*) FROM lane WHERE class=$1 AND key=$2 AND epoch=$3 AND owner IS NOT NULL`,
		string(l.Class), l.Key, l.Epoch).Scan(&n)
	if err == nil && n == 0 {
		err = queue.ErrFenced
	}
	return err
}

// writeLanes writes the touched lanes and, if fence is set, holds the lease's own
// lane until the commit, all in one order.
func (s *Store) writeLanes(ctx context.Context, l queue.Lease, fence bool) error {
	st := ctx.Value(txnStateKey{}).(*txnState)
	own := laneKey{l.Class, l.Key}
	keys := make([]laneKey, 0, len(st.touched)+1)
	for k := range st.touched {
		keys = append(keys, k)
	}
	if _, ok := st.touched[own]; fence && !ok {
		keys = append(keys, own)
	}
	slices.SortFunc(keys, laneKey.compare)
	for _, k := range keys {
		if fence && k == own {
			if err := s.holdFence(ctx, l); err != nil {
				return err
			}
		}
		due, ok := st.touched[k]
		if !ok {
			continue
		}
		st.woken[k.class] = true
		_, err := s.exec(ctx, `INSERT INTO lane (class, key, due) VALUES ($1, $2, $3)
			ON CONFLICT (class, key) DO UPDATE SET due=excluded.due WHERE lane.due IS NULL OR lane.due>excluded.due`,
			string(k.class), k.key, due)
		if err != nil {
			return fmt.Errorf("wake lane: %w", err)
		}
	}
	clear(st.touched)
	return s.notify(ctx, st)
}

func (s *Store) holdFence(ctx context.Context, l queue.Lease) error {
	n, err := s.exec(ctx, `UPDATE lane SET lease_until=lease_until WHERE class=$1 AND key=$2 AND epoch=$3 AND owner IS NOT NULL`,
		string(l.Class), l.Key, l.Epoch)
	if err == nil && n == 0 {
		err = queue.ErrFenced
	}
	return err
}

// notify tells other processes of the database, at the commit.
func (s *Store) notify(ctx context.Context, st *txnState) error {
	if !s.cfg.Notify || !s.postgres() {
		return nil
	}
	for class := range st.woken {
		if _, err := s.db.Exec(ctx, `SELECT pg_notify($1, $2)`, NotifyChannel, string(class)); err != nil {
			return fmt.Errorf("notify: %w", err)
		}
	}
	return nil
}

// read gives what a query outside a write goes through: the transaction in ctx,
// else SQLite's readers or any connection.
func (s *Store) read(ctx context.Context) dbutil.Execable {
	ex := s.db.Execable(ctx)
	if _, ok := ex.(dbutil.Transaction); ok || s.ro == nil {
		return ex
	}
	return s.ro.Execable(ctx)
}

// forUpdate ends a SELECT whose row the transaction will change.
func (s *Store) forUpdate() string {
	if s.postgres() {
		return " FOR UPDATE"
	}
	return "" // SQLite has one writer
}

// list collects the rows of a query.
func list[T any](ctx context.Context, ex dbutil.Execable, scan func(dbutil.Scannable) (T, error), query string, args ...any) ([]T, error) {
	rows, err := ex.QueryContext(ctx, query, args...)
	return dbutil.NewRowIterWithError(rows, scan, err).AsList()
}

// WithoutTxn returns ctx without the database transaction that rides in it, if
// any. Whoever calls a handler, a model or a homeserver passes this on: what
// they write must not be part of a transaction, nor hold it open.
func WithoutTxn(ctx context.Context) context.Context { return outside{ctx} }

// outside hides transactions. dbutil's key cannot be named from here, so they
// are known by their type.
type outside struct{ context.Context }

func (o outside) Value(key any) any {
	switch v := o.Context.Value(key).(type) {
	case dbutil.Transaction, *txnState:
		return nil
	default:
		return v
	}
}

// toMS and fromMS turn times into Unix milliseconds and back; the zero time is 0.
func toMS(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMS(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// orNow is t, or the present if t is unset.
func (s *Store) orNow(t time.Time) time.Time {
	if t.IsZero() {
		return s.cfg.Now()
	}
	return t
}
