package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrationLock is the advisory lock under which PostgreSQL is migrated: two
// replicas that start at once take turns.
const migrationLock = 0x6d6f6f74 // "moot"

// migration is one step of the schema. Released ones never change.
type migration struct {
	version  int
	name     string
	up, down string
}

// Latest is the schema version this program works with.
func Latest() int { return len(steps()) }

// steps reads the embedded migrations. They are numbered from 1 without a gap
// and in pairs; a test holds this, so a fault here is a broken build.
func steps() []migration {
	var all []migration
	names, _ := fs.Glob(migrations, "migrations/*.up.sql") // in order of name
	for i, up := range names {
		down := strings.TrimSuffix(up, ".up.sql") + ".down.sql"
		u, _ := migrations.ReadFile(up)
		d, _ := migrations.ReadFile(down)
		all = append(all, migration{i + 1, strings.TrimPrefix(strings.TrimSuffix(up, ".up.sql"), "migrations/"), string(u), string(d)})
	}
	return all
}

// Migrate takes the database of cfg to a schema version, up or down, and tells
// where it was and is. Going down deletes what the newer versions kept. It needs
// the database for itself.
func Migrate(ctx context.Context, cfg Config, target int) (from, to int, err error) {
	if target < 0 || target > Latest() {
		return 0, 0, fmt.Errorf("there is no schema version %d: 0 to %d are known", target, Latest())
	}
	cfg.ReadOnly = false
	s, err := connect(ctx, cfg)
	if err != nil {
		return 0, 0, err
	}
	from, to, err = s.migrate(ctx, target)
	return from, to, errors.Join(err, s.Close())
}

func (s *Store) migrate(ctx context.Context, target int) (from, to int, err error) {
	conn, err := s.db.RawDB.Conn(ctx)
	if err != nil {
		return 0, 0, s.explain("migrate", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if s.postgres() {
		if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, migrationLock); err != nil {
			return 0, 0, s.explain("lock", err)
		}
		defer func() {
			_, unlockErr := conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, migrationLock)
			err = errors.Join(err, unlockErr)
		}()
	}
	from, err = s.versionOn(ctx, conn)
	if err != nil {
		return 0, 0, s.explain("read the version of", err)
	}
	if from > Latest() {
		return from, from, &NewerError{Name: s.name, Database: from, Program: Latest()}
	}
	all := steps()
	for to = from; to != target; {
		next, text := to+1, ""
		if target < to {
			next = to - 1
			text = all[next].down
		} else {
			text = all[to].up
		}
		if err := s.applyOne(ctx, conn, next, text); err != nil {
			return from, to, s.explain(fmt.Sprintf("take to schema version %d", next), err)
		}
		s.cfg.Log.Info().Int("from", to).Int("to", next).Msg("Migrated the database")
		to = next
	}
	return from, to, nil
}

// applyOne runs one migration and sets the version in one transaction.
func (s *Store) applyOne(ctx context.Context, conn *sql.Conn, version int, text string) error {
	text, err := forEngine(text, s.postgres())
	if err != nil {
		return err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, q := range []string{
		`CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)`,
		text,
		`DELETE FROM schema_version`,
		fmt.Sprintf(`INSERT INTO schema_version (version) VALUES (%d)`, version),
	} {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// forEngine fills in what the engines write differently: the token {{serial}}
// and the lines between "-- only: sqlite" or "-- only: postgres" and "-- end".
func forEngine(text string, postgres bool) (string, error) {
	engine, serial := TypeSQLite, "INTEGER PRIMARY KEY AUTOINCREMENT"
	if postgres {
		engine, serial = TypePostgres, "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
	}
	var out strings.Builder
	only := ""
	for line := range strings.Lines(text) {
		mark := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(mark, "-- only: "):
			if only != "" {
				return "", errors.New("migration: -- only inside -- only")
			}
			only = strings.TrimPrefix(mark, "-- only: ")
			if only != TypeSQLite && only != TypePostgres {
				return "", fmt.Errorf("migration: -- only for unknown engine %q", only)
			}
		case mark == "-- end":
			only = ""
		case only == "" || only == engine:
			out.WriteString(line)
		}
	}
	if only != "" {
		return "", errors.New("migration: -- only without -- end")
	}
	return strings.ReplaceAll(out.String(), "{{serial}}", serial), nil
}

// schemaVersion reads the version without writing anything.
func (s *Store) schemaVersion(ctx context.Context) (_ int, err error) {
	conn, err := s.db.RawDB.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return s.versionOn(ctx, conn)
}

func (s *Store) versionOn(ctx context.Context, conn *sql.Conn) (int, error) {
	exists := `SELECT COUNT(*) FROM sqlite_master WHERE type='table' AND name='schema_version'`
	if s.postgres() {
		exists = `SELECT COUNT(to_regclass('schema_version'))`
	}
	var n int
	if err := conn.QueryRowContext(ctx, exists).Scan(&n); err != nil || n == 0 {
		return 0, err
	}
	var v int
	err := conn.QueryRowContext(ctx, `SELECT version FROM schema_version`).Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return v, err
}

// checkVersion tells whether this program can work with version v as it is.
func (s *Store) checkVersion(v int) error {
	switch {
	case v > Latest():
		return &NewerError{Name: s.name, Database: v, Program: Latest()}
	case v < Latest():
		return &OlderError{Name: s.name, Database: v, Program: Latest()}
	}
	return nil
}
