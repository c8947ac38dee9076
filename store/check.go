package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Check looks at the database of cfg without changing or locking it and tells
// what would keep [Open] from working: it cannot be reached, is newer than this
// program ([*NewerError]) or cannot be written. A database that is empty, older
// or not made yet is fine.
func Check(ctx context.Context, cfg Config) error {
	if cfg.Type == TypeSQLite || cfg.Type == "" {
		missing, err := checkFile(cfg.Path)
		if err != nil || missing {
			return err
		}
	}
	cfg.ReadOnly = true
	s, err := connect(ctx, cfg)
	if err != nil {
		return err
	}
	v, err := s.schemaVersion(ctx)
	switch {
	case err != nil:
		err = s.explain("read the version of", err)
	case v > Latest():
		err = &NewerError{Name: s.name, Database: v, Program: Latest()}
	}
	return errors.Join(err, s.Close())
}

// checkFile sees that the file, or the folder where it would be made, can be written.
func checkFile(path string) (missing bool, err error) {
	if path == "" {
		return false, errors.New("the database has no path")
	}
	path, err = resolve(path)
	if err != nil {
		return false, fmt.Errorf("find database file: %w", err)
	}
	s := &Store{name: "database file " + path}
	dir := filepath.Dir(path)
	probe, err := os.CreateTemp(dir, ".moothall-check-*")
	if err != nil {
		return false, s.explain("write beside", err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return false, s.explain("write beside", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // the operator's own path
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, s.explain("write", err)
	}
	return false, f.Close()
}

// Writable does a tiny real write and reports whether it was kept.
func (s *Store) Writable(ctx context.Context) error {
	return s.setNote(ctx, "writable", "store/writable", "")
}

// Stats is what a database holds, for people and metrics.
type Stats struct {
	SchemaVersion int
	Inbox         int // events not routed yet
	BadEvents     int // kept aside since they could not be understood
	Work          int // rows to do, those with a later time included
	Outbox        int // messages not sent yet
	Held          int // lanes somebody holds
	OpenApprovals int // pending or approved
	Unsettled     int // executions whose outcome a person must tell
}

// Stats counts. It reads all rows that are not done, so ask it now and then.
func (s *Store) Stats(ctx context.Context) (Stats, error) {
	st := Stats{SchemaVersion: s.version}
	err := s.read(ctx).QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM inbox WHERE state=0),
		(SELECT COUNT(*) FROM inbox WHERE state=2),
		(SELECT COUNT(*) FROM work WHERE state=0),
		(SELECT COUNT(*) FROM outbox WHERE state=0),
		(SELECT COUNT(*) FROM lane WHERE owner IS NOT NULL),
		(SELECT COUNT(*) FROM approval WHERE state IN ('pending', 'approved')),
		(SELECT COUNT(*) FROM execution WHERE unsettled=1)`).
		Scan(&st.Inbox, &st.BadEvents, &st.Work, &st.Outbox, &st.Held, &st.OpenApprovals, &st.Unsettled)
	if err != nil {
		return Stats{}, fmt.Errorf("stats: %w", err)
	}
	return st, nil
}
