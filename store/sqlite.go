package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"go.mau.fi/util/dbutil"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// What follows "file:PATH" for the writer, the readers and a read-only store.
// FULL: an event we answered 200 for must survive a power cut. immediate: a
// transaction that reads and then writes must not find its snapshot outdated.
const (
	sqlitePragmas = "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)" +
		"&_pragma=foreign_keys(1)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-16384)&_time_format=sqlite"
	sqliteWriter   = "?_txlock=immediate&" + sqlitePragmas
	sqliteReader   = "?" + sqlitePragmas + "&_pragma=query_only(1)"
	sqliteReadOnly = "?mode=ro&_pragma=busy_timeout(5000)&_pragma=temp_store(MEMORY)&_time_format=sqlite&_pragma=query_only(1)"

	sqliteReaders = 4
)

func connectSQLite(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Path == "" {
		return nil, errors.New("the database has no path")
	}
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, fmt.Errorf("find database file %s: %w", cfg.Path, err)
	}
	s := &Store{cfg: cfg, name: "database file " + path}
	if cfg.ReadOnly {
		if _, err := os.Stat(path); err != nil {
			return nil, s.explain("open", err)
		}
		s.db, err = s.pool(ctx, path, sqliteReadOnly, sqliteReaders)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	if err := s.makeFile(path); err != nil {
		return nil, err
	}
	if s.lock, err = lockFile(path + ".lock"); err != nil {
		return nil, s.explain("lock", err)
	}
	if s.db, err = s.pool(ctx, path, sqliteWriter, 1); err == nil {
		s.ro, err = s.pool(ctx, path, sqliteReader, sqliteReaders)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// resolve gives the one true name of the file, so that two ways of writing it
// meet at the same lock.
func resolve(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return abs, nil
	}
	return real, err
}

// makeFile makes the file with mode 0600 if there is none and finds out early
// that it cannot be written.
func (s *Store) makeFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator's own path
	if err != nil {
		return s.explain("write", err)
	}
	return f.Close()
}

// pool opens a pool on path and sees that it answers.
func (s *Store) pool(ctx context.Context, path, params string, conns int) (*dbutil.Database, error) {
	// The path of a URI is escaped, so that ? # and % in names are only names.
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + params
	raw, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, s.explain("open", err)
	}
	raw.SetMaxOpenConns(conns)
	raw.SetMaxIdleConns(conns)
	if err := raw.PingContext(ctx); err != nil {
		return nil, errors.Join(s.explain("open", err), raw.Close())
	}
	return wrap(raw, "sqlite")
}

// explain turns an error of opening into one sentence that names the database.
func (s *Store) explain(what string, err error) error {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		switch lite.Code() & 0xff {
		case sqlite3.SQLITE_READONLY:
			return fmt.Errorf("%s cannot be written: give this user write access to it and to its folder: %w", s.name, err)
		case sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT:
			return fmt.Errorf("%s is not a sound SQLite database: %w", s.name, err)
		}
	}
	switch {
	case errors.Is(err, fs.ErrPermission) || isReadOnlyFS(err):
		return fmt.Errorf("%s cannot be written: give this user write access to it and to its folder: %w", s.name, err)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s cannot be found, or its folder cannot: %w", s.name, err)
	}
	return fmt.Errorf("%s %s: %w", what, s.name, err)
}
