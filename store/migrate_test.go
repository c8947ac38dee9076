package store

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"moothall/internal/pgtest"
)

// fresh gives an empty database of each engine.
func fresh(t *testing.T, engine string) Config {
	t.Helper()
	if engine == TypePostgres {
		return Config{Type: TypePostgres, URI: pgtest.DSN(t)}
	}
	return Config{Path: filepath.Join(t.TempDir(), "moothall.db")}
}

func engines() []string { return []string{TypeSQLite, TypePostgres} }

func TestMigrationsComeInPairs(t *testing.T) {
	ups, _ := fs.Glob(migrations, "migrations/*.up.sql")
	all, _ := fs.Glob(migrations, "migrations/*")
	if len(all) != 2*len(ups) || len(ups) != Latest() {
		t.Fatalf("%d files, %d of them up, latest %d", len(all), len(ups), Latest())
	}
	for i, m := range steps() {
		if !strings.HasPrefix(m.name, fmt.Sprintf("%04d_", i+1)) {
			t.Errorf("migration %d is named %s", i+1, m.name)
		}
		if m.up == "" || m.down == "" {
			t.Errorf("%s lacks up or down", m.name)
		}
		for _, postgres := range []bool{false, true} {
			for _, text := range []string{m.up, m.down} {
				if _, err := forEngine(text, postgres); err != nil {
					t.Errorf("%s: %v", m.name, err)
				}
			}
		}
	}
}

func TestMigrateUpDownUp(t *testing.T) {
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			cfg := fresh(t, engine)
			for _, target := range []int{Latest(), 0, Latest(), Latest(), 0} {
				_, to, err := Migrate(t.Context(), cfg, target)
				if err != nil || to != target {
					t.Fatalf("to %d: at %d, error %v", target, to, err)
				}
				for v := target; v > 0 && target == Latest(); v-- { // and one by one
					if _, _, err := Migrate(t.Context(), cfg, v-1); err != nil {
						t.Fatalf("down to %d: %v", v-1, err)
					}
					if _, _, err := Migrate(t.Context(), cfg, v); err != nil {
						t.Fatalf("up to %d: %v", v, err)
					}
				}
			}
			for _, target := range []int{-1, Latest() + 1} {
				if _, _, err := Migrate(t.Context(), cfg, target); err == nil {
					t.Errorf("target %d was taken", target)
				}
			}
			s, err := connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			left := `SELECT COUNT(*) FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'`
			if cfg.Type == TypePostgres {
				left = `SELECT COUNT(*) FROM pg_class WHERE relnamespace='public'::regnamespace`
			}
			var n int
			if err := s.db.QueryRow(t.Context(), left).Scan(&n); err != nil || n != 1 {
				t.Errorf("%d things are left at version 0, want schema_version alone; error %v", n, err)
			}
		})
	}
}

func TestVersionsThatDoNotFit(t *testing.T) {
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			cfg := fresh(t, engine)
			reader := cfg
			reader.ReadOnly = true
			if _, _, err := Migrate(t.Context(), cfg, 0); err != nil {
				t.Fatal(err)
			}
			_, err := Open(t.Context(), reader)
			older, ok := asType[*OlderError](err)
			if !ok || older.Database != 0 || older.Program != Latest() {
				t.Errorf("reading an empty database: %v", err)
			}
			if err := Check(t.Context(), cfg); err != nil {
				t.Errorf("checking an empty database: %v", err)
			}
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.db.Exec(t.Context(), `UPDATE schema_version SET version=999`); err != nil {
				t.Fatal(err)
			}
			name := s.name
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			_, writing := Open(t.Context(), cfg)
			_, reading := Open(t.Context(), reader)
			_, _, down := Migrate(t.Context(), cfg, 0)
			for what, err := range map[string]error{
				"open": writing, "open for reading": reading, "migrate": down, "check": Check(t.Context(), cfg),
			} {
				newer, ok := asType[*NewerError](err)
				if !ok {
					t.Errorf("%s: %v", what, err)
					continue
				}
				text := newer.Error()
				for _, part := range []string{name, "999", fmt.Sprint(Latest())} {
					if !strings.Contains(text, part) {
						t.Errorf("%s: %q does not name %s", what, text, part)
					}
				}
			}
		})
	}
}

// A migration that fails half way leaves the version and the schema as they were.
func TestAFailedMigrationLeavesNothing(t *testing.T) {
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			cfg := fresh(t, engine)
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			conn, err := s.db.RawDB.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			err = s.applyOne(t.Context(), conn, 99, "CREATE TABLE half (id BIGINT);\nCREATE TABLE lane (id BIGINT);")
			if err == nil {
				t.Fatal("it worked")
			}
			if v, err := s.versionOn(t.Context(), conn); err != nil || v != Latest() {
				t.Errorf("version %d, error %v", v, err)
			}
			if _, err := conn.ExecContext(t.Context(), `CREATE TABLE half (id BIGINT)`); err != nil {
				t.Errorf("the failed migration left its table: %v", err)
			}
		})
	}
}

func TestReplicasMigrateInTurns(t *testing.T) {
	cfg := Config{Type: TypePostgres, URI: pgtest.DSN(t), MaxConns: 2}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
}

// Every released schema, with rows in it, opens and migrates. The fixtures are
// dumps of SQLite databases, one per migration.
func TestFixturesMigrate(t *testing.T) {
	for _, m := range steps() {
		t.Run(m.name, func(t *testing.T) {
			dump, err := os.ReadFile(filepath.Join("testdata", m.name+".sql"))
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Path: filepath.Join(t.TempDir(), "moothall.db")}
			raw, err := connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := raw.db.RawDB.ExecContext(t.Context(), string(dump)); err != nil {
				t.Fatal(err)
			}
			if err := raw.Close(); err != nil {
				t.Fatal(err)
			}
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			st, err := s.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := Stats{SchemaVersion: Latest(), Inbox: 1, BadEvents: 1, Work: 3, Outbox: 1, Held: 1, OpenApprovals: 1, Unsettled: 1}
			if st != want {
				t.Errorf("got %+v; want %+v", st, want)
			}
			a, err := s.Ledger().Approval(t.Context(), "apr_1")
			if err != nil || len(a.Votes) != 1 || a.Requirements.Quorum != 2 {
				t.Errorf("approval %+v, error %v", a, err)
			}
		})
	}
}

func TestForEngine(t *testing.T) {
	text := "a {{serial}}\n-- only: sqlite\nlite\n-- end\n-- only: postgres\npg\n-- end\nz"
	for postgres, want := range map[bool]string{
		false: "a INTEGER PRIMARY KEY AUTOINCREMENT\nlite\nz",
		true:  "a BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY\npg\nz",
	} {
		if got, err := forEngine(text, postgres); err != nil || got != want {
			t.Errorf("got %q, error %v; want %q", got, err, want)
		}
	}
	for _, bad := range []string{"-- only: oracle\n-- end", "-- only: sqlite\n", "-- only: sqlite\n-- only: sqlite\n-- end"} {
		if _, err := forEngine(bad, false); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
