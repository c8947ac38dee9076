package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/rs/zerolog"
	"go.mau.fi/util/dbutil"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"moothall/bridge/queue"
)

// The types of database.
const (
	TypeSQLite   = "sqlite"
	TypePostgres = "postgres"
)

// Config says which database and how.
type Config struct {
	// Type is [TypeSQLite] (the default) or [TypePostgres].
	Type string
	// Path is the SQLite file. Its folder must exist; the file is made, for its
	// owner's eyes only, if it does not.
	Path string
	// URI is PostgreSQL's address, as a URL or as key=value words.
	URI string
	// MaxConns bounds the connections to PostgreSQL. Default: 16.
	MaxConns int
	// ReadOnly opens without lock, migration or write, also beside a running
	// process. The database must exist and be of this program's version.
	ReadOnly bool
	// Log gets what happens outside any call: migrations. The zero value is silent.
	Log zerolog.Logger
	// Now gives the time where a caller names none. Default: time.Now.
	Now func() time.Time
	// Wake is called once per class after a commit that gave lanes of that class
	// something to do. It must not block and may be called concurrently.
	Wake func(queue.Class)
	// Notify makes such commits tell the other processes on a PostgreSQL
	// database too (channel [NotifyChannel], payload: the class).
	Notify bool
	// Fault is the seam for fault tests and nothing else: it is called inside
	// every write transaction right before its commit, with the name of the step,
	// and its error (or panic) makes that transaction roll back.
	Fault func(step string) error
}

// Store is an open database. Make it with [Open].
type Store struct {
	cfg     Config
	db      *dbutil.Database // the writer; on PostgreSQL every connection
	ro      *dbutil.Database // SQLite's readers; nil on PostgreSQL
	lock    *fileLock        // nil if read-only or PostgreSQL
	stmts   statements
	name    string    // how messages name the database
	alone   *sql.Conn // holds the lock of [Store.Alone] on PostgreSQL
	version int
}

// Open opens the database of cfg and brings its schema up to date. A database
// newer than this program is refused with a [*NewerError], a SQLite file in use
// by another process with a [*InUseError].
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s, err := connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect opens the pools and takes the lock, and looks at nothing.
func connect(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	switch cfg.Type {
	case TypeSQLite, "":
		cfg.Type = TypeSQLite
		return connectSQLite(ctx, cfg)
	case TypePostgres:
		return connectPostgres(ctx, cfg)
	}
	return nil, fmt.Errorf("database type %q is not known: use %s or %s", cfg.Type, TypeSQLite, TypePostgres)
}

// prepare migrates, or checks the version of a database that must not be written.
func (s *Store) prepare(ctx context.Context) error {
	if !s.cfg.ReadOnly {
		_, to, err := s.migrate(ctx, Latest())
		s.version = to
		return err
	}
	v, err := s.schemaVersion(ctx)
	if err != nil {
		return s.explain("read the version of", err)
	}
	s.version = v
	return s.checkVersion(v)
}

// Close closes the database and gives up the lock.
func (s *Store) Close() error {
	var errs []error
	if s.ro != nil {
		errs = append(errs, s.ro.Close()) // first, so that the writer is the last and cleans up
	}
	if s.alone != nil {
		errs = append(errs, s.alone.Close())
		s.alone = nil
	}
	if s.db != nil {
		errs = append(errs, s.stmts.close(), s.db.Close())
	}
	errs = append(errs, s.lock.release())
	return errors.Join(errs...)
}

// Rows gives the ports of bridge/queue.
func (s *Store) Rows() *Rows { return &Rows{s} }

// Ledger gives the port of runtime/gate.
func (s *Store) Ledger() *Ledger { return &Ledger{s} }

// Handle gives the database to the Matrix library's own stores (encryption
// keys), which share it under table names of their own. On SQLite it is the one
// writing connection. Nothing else may use it.
func (s *Store) Handle() *dbutil.Database { return s.db }

// Identities implements gate.People. No links between identities are kept yet:
// a person is the one id.
func (s *Store) Identities(_ context.Context, id string) ([]string, error) {
	return []string{id}, nil
}

// wrap makes a pool into a dbutil database. dbutil stays without a logger: it
// would be handed arguments.
func wrap(pool *sql.DB, dialect string) (*dbutil.Database, error) {
	db, err := dbutil.NewWithDB(pool, dialect)
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	return db, nil
}

func (s *Store) postgres() bool { return s.cfg.Type == TypePostgres }
