package pgtest_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"moothall/internal/pgtest"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// childEnv makes TestInChild play a test binary: "ends" or "hangs".
const childEnv = "MOOTHALL_TEST_PG_CHILD"

func TestFreshDatabasesAreSeparate(t *testing.T) {
	first, second := connect(t, pgtest.DSN(t)), connect(t, pgtest.DSN(t))
	makeTown(t, first)
	if n := ask[int](t, first, "SELECT count(*) FROM pg_tables WHERE tablename = 'town'"); n != 1 {
		t.Errorf("the first database has %d tables town; want 1", n)
	}
	if n := ask[int](t, second, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"); n != 0 {
		t.Errorf("the second database has %d tables; want none", n)
	}
	if got := ask[string](t, first, "SHOW server_encoding"); got != "UTF8" {
		t.Errorf("encoding is %s", got)
	}
}

func TestADatabaseEndsWithItsTest(t *testing.T) {
	other := connect(t, pgtest.DSN(t))
	var name string
	t.Run("test", func(t *testing.T) {
		// Not closed: an open connection must not keep it.
		name = ask[string](t, dial(t, pgtest.DSN(t)), "SELECT current_database()")
	})
	var n int
	if err := other.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&n); err != nil || n != 0 {
		t.Errorf("database %s: %d there, error %v", name, n, err)
	}
}

func TestTestsInParallel(t *testing.T) {
	for range 8 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			makeTown(t, connect(t, pgtest.DSN(t)))
		})
	}
}

func TestServersOfOnesOwn(t *testing.T) {
	for _, tt := range []struct {
		name    string
		durable bool
		fsync   string
	}{
		{"quick", false, "off"},
		{"durable", true, "on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := own(t, pgtest.Options{Durable: tt.durable})
			conn := connect(t, s.DSN())
			for setting, want := range map[string]string{
				"fsync": tt.fsync, "synchronous_commit": tt.fsync, "full_page_writes": tt.fsync,
				"listen_addresses": "127.0.0.1", "unix_socket_directories": "",
			} {
				if got := ask[string](t, conn, "SHOW "+setting); got != want {
					t.Errorf("%s is %q; want %q", setting, got, want)
				}
			}
			if _, err := pgx.Connect(t.Context(), strings.Replace(s.DSN(), "moothall:", "moothall:x", 1)); err == nil {
				t.Error("it lets everybody in")
			}
			dir := ask[string](t, conn, "SHOW data_directory")
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
			gone(t, s.DSN(), dir)
			if err := s.Stop(); err != nil {
				t.Errorf("second stop: %v", err)
			}
		})
	}
}

func TestAServerThatIsGiven(t *testing.T) {
	s := own(t, pgtest.Options{})
	u, err := url.Parse(s.DSN())
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	for name, dsn := range map[string]string{
		"URL": s.DSN(),
		"key=value": fmt.Sprintf("host=%s port=%s user=%s password=%s dbname=postgres sslmode=disable",
			u.Hostname(), u.Port(), u.User.Username(), password),
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("MOOTHALL_TEST_POSTGRES", dsn)
			conn := connect(t, pgtest.DSN(t))
			if got := ask[string](t, conn, "SELECT current_database()"); !strings.HasPrefix(got, "moothall_test_") {
				t.Errorf("the database is %s", got)
			}
			if got := ask[string](t, conn, "SHOW port"); got != u.Port() {
				t.Errorf("the port is %s; want that of the given server, %s", got, u.Port())
			}
		})
	}
}

func TestTheServerEndsWithTheTests(t *testing.T) {
	for name, crash := range map[string]bool{"ends": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			own(t, pgtest.Options{}) // or skip
			cmd := exec.Command(os.Args[0], "-test.run=^TestInChild$", "-test.v")
			cmd.Env = append(os.Environ(), childEnv+"="+name, "MOOTHALL_TEST_POSTGRES=")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			dsn, dir := "", ""
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if rest, ok := strings.CutPrefix(lines.Text(), "SERVER "); ok {
					dsn, dir, _ = strings.Cut(rest, " ")
					if crash {
						_ = connect(t, dsn) // it is there
						_ = cmd.Process.Kill()
					}
				}
			}
			err = cmd.Wait()
			if dsn == "" {
				t.Fatalf("the child started no server: %v", err)
			}
			if crash {
				await(t, dir)
			} else if err != nil {
				t.Errorf("the child failed: %v", err)
			}
			gone(t, dsn, dir)
		})
	}
}

func TestInChild(t *testing.T) {
	how := os.Getenv(childEnv)
	if how == "" {
		return // TestTheServerEndsWithTheTests runs it
	}
	dsn := pgtest.DSN(t)
	_, _ = fmt.Fprintf(os.Stdout, "\nSERVER %s %s\n", dsn, ask[string](t, connect(t, dsn), "SHOW data_directory"))
	if how == "hangs" {
		time.Sleep(time.Minute)
	}
}

// own starts a server for this test only.
func own(t *testing.T, o pgtest.Options) *pgtest.Server {
	t.Helper()
	if os.Getenv("MOOTHALL_TEST_POSTGRES") == "" {
		pgtest.DSN(t) // skips or fails as it should
	}
	s, err := pgtest.Start(t.Context(), o)
	if errors.Is(err, pgtest.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dial(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn := dial(t, dsn)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func makeTown(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "CREATE TABLE town (name TEXT)"); err != nil {
		t.Fatal(err)
	}
}

// ask runs a query that gives one value.
func ask[T any](t *testing.T, conn *pgx.Conn, query string) T {
	t.Helper()
	var got T
	if err := conn.QueryRow(t.Context(), query).Scan(&got); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return got
}

// gone checks that neither the server nor its folder is left.
func gone(t *testing.T, dsn, dir string) {
	t.Helper()
	if conn, err := pgx.Connect(t.Context(), dsn); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the server lives")
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is there: %v", err)
	}
}

// await waits until dir is no more.
func await(t *testing.T, dir string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
	}
	t.Errorf("%s is still there", dir)
}
