package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// aloneLock is the advisory lock of whoever believes to be the only process on a
// PostgreSQL database ("hall" in ASCII). It is held for life, so it must not be
// the one under which the database is migrated.
const aloneLock = 0x68616c6c

// How long another process is given to be found dead.
const (
	aloneTries = 10
	alonePause = 100 * time.Millisecond
)

// Alone reports whether no other process serves this database, so that every
// lease still in it belongs to the dead. On SQLite the file's lock says so. On
// PostgreSQL it takes a session lock and holds it, on a connection of its own,
// until [Store.Close]; if the server ends that connection, somebody else may
// believe to be alone, and the epochs keep the two apart.
func (s *Store) Alone(ctx context.Context) (bool, error) {
	if s.cfg.ReadOnly {
		return false, nil
	}
	if s.ro != nil {
		return true, nil
	}
	if s.alone != nil {
		return true, nil
	}
	conn, err := s.db.RawDB.Conn(ctx)
	if err != nil {
		return false, s.explain("reach", err)
	}
	// A process that was just killed is noticed by the server a moment later.
	for range aloneTries {
		var got bool
		if err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1)`, aloneLock).Scan(&got); err != nil {
			return false, fmt.Errorf("see whether another process serves %s: %w", s.name, closing(conn, err))
		}
		if got {
			s.alone = conn
			return true, nil
		}
		if err := pause(ctx, alonePause); err != nil {
			break
		}
	}
	return false, closing(conn, nil)
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func closing(c *sql.Conn, err error) error {
	if cerr := c.Close(); err == nil {
		return cerr
	}
	return err
}
