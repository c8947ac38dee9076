// Package pgtest gives tests a real, private PostgreSQL.
//
// [DSN] is all that most tests need: a fresh empty database, dropped when the
// test ends, on a server that the tests of one binary share. The server listens
// on a free port of 127.0.0.1, asks for a password and keeps its data in a
// temporary folder. It ends, and its folder goes, with the test binary: [Main]
// waits for that, and a binary that crashes or is killed takes the server along.
//
// MOOTHALL_TEST_POSTGRES, the DSN of a connection that may create databases,
// makes tests use that server instead of starting one.
//
// A test that cannot have a database is skipped and says why. Where it must not
// be, set MOOTHALL_REQUIRE to a comma-separated list that has "postgres" in it:
// then it fails instead.
package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	serverEnv  = "MOOTHALL_TEST_POSTGRES"
	requireEnv = "MOOTHALL_REQUIRE"

	// stepTimeout bounds making or dropping a database; both take well below a
	// second, but wait for the disk of a busy machine.
	stepTimeout = 30 * time.Second
)

// ErrNotInstalled says that this machine has no PostgreSQL server programs.
var ErrNotInstalled = errors.New("PostgreSQL is not installed: no initdb and postgres in PATH or in /usr/lib/postgresql")

// DSN returns the address of a fresh empty database, as a URL unless
// MOOTHALL_TEST_POSTGRES is not one. It is dropped when the test ends, and
// connections that are still open then are cut.
func DSN(tb testing.TB) string {
	tb.Helper()
	admin, err := adminDSN(tb.Context())
	if err != nil {
		missing(tb, err)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), stepTimeout)
	defer cancel()
	dsn, err := create(ctx, admin)
	if err != nil {
		tb.Fatalf("make a test database: %v", err)
	}
	tb.Log("engine: postgres") // counted by internal/tally
	tb.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), stepTimeout)
		defer cancel()
		if err := drop(ctx, admin, dsn); err != nil {
			tb.Errorf("drop the test database: %v", err)
		}
	})
	return dsn
}

// Main runs the tests and then stops the server that they shared, if any. It
// returns the exit code. A package whose tests use [DSN] has
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	if err := shared.stop(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err) // there is nobody else to tell
		code = max(code, 1)
	}
	return code
}

// shared is the one server of this test binary. Tests have no other place that
// all of them reach.
var shared sharedServer

type sharedServer struct {
	mu     sync.Mutex
	begun  bool
	server *Server
	err    error
}

// get starts the server on its first call.
func (s *sharedServer) get(ctx context.Context) (*Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun = true
		s.server, s.err = Start(ctx, Options{})
	}
	return s.server, s.err
}

func (s *sharedServer) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}

// adminDSN is a connection that may create databases.
func adminDSN(ctx context.Context) (string, error) {
	if dsn := os.Getenv(serverEnv); dsn != "" {
		return dsn, nil
	}
	s, err := shared.get(ctx)
	if err != nil {
		return "", err
	}
	return s.DSN(), nil
}

// missing ends a test that has no server: by a skip only where nobody asked for
// one and there is none to be had.
func missing(tb testing.TB, err error) {
	tb.Helper()
	list := strings.Split(os.Getenv(requireEnv), ",")
	if slices.ContainsFunc(list, func(s string) bool { return strings.TrimSpace(s) == "postgres" }) {
		tb.Fatalf("%s asks for postgres: %v", requireEnv, err)
	}
	if errors.Is(err, ErrNotInstalled) {
		tb.Skip(err)
	}
	tb.Fatal(err)
}

// create makes an empty database and returns its address.
func create(ctx context.Context, admin string) (dsn string, err error) {
	name := "moothall_test_" + strings.ToLower(rand.Text())
	if dsn, err = withDatabase(admin, name); err != nil {
		return "", err
	}
	// template0 cannot have been changed by anybody, nor be in use.
	err = execute(ctx, admin, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE template0 ENCODING 'UTF8'")
	if err != nil {
		return "", err
	}
	return dsn, nil
}

// drop removes the database of dsn, which create made.
func drop(ctx context.Context, admin, dsn string) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	return execute(ctx, admin, "DROP DATABASE IF EXISTS "+pgx.Identifier{cfg.Database}.Sanitize()+" WITH (FORCE)")
}

func execute(ctx context.Context, dsn, statement string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing is lost with it
	_, err = conn.Exec(ctx, statement)
	return err
}

// withDatabase is dsn, a URL or a list of key=value, with another database.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil // the last one counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("%s is not a URL", serverEnv) // its parse error would show the password
	}
	u.Path, u.RawPath = "/"+name, ""
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = query.Encode()
	return u.String(), nil
}
