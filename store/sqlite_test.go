package store

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func asType[T error](err error) (T, bool) { return errors.AsType[T](err) }

func TestOddPaths(t *testing.T) {
	for _, name := range []string{
		"plain.db", "with space.db", "a?b=c.db", "a#b.db", "100%.db", "%41.db", "a&mode=memory.db", "naïve-é.db", "semi;colon:.db", "-dash.db", "a'b\".db",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cfg := Config{Path: filepath.Join(dir, name)}
			s, err := Open(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Rows().SetNote(t.Context(), "a", "b"); err != nil {
				t.Fatal(err)
			}
			if v, err := s.Rows().Note(t.Context(), "a"); err != nil || v != "b" { // by the readers
				t.Errorf("read %q, error %v", v, err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if e.Name() != name && e.Name() != name+".lock" {
					t.Errorf("a file %q appeared", e.Name())
				}
				if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s: mode %v, error %v", e.Name(), info.Mode(), err)
				}
			}
		})
	}
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := Open(t.Context(), Config{Path: "moothall.db"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("moothall.db"); err != nil {
		t.Error(err)
	}
}

func TestOneProcessPerFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "moothall.db")
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{path, link} {
		_, err := Open(t.Context(), Config{Path: p})
		if _, ok := asType[*InUseError](err); !ok || !strings.Contains(err.Error(), path) {
			t.Errorf("a second writer through %s: %v", filepath.Base(p), err)
		}
		if _, _, err := Migrate(t.Context(), Config{Path: p}, 0); err == nil {
			t.Error("a database in use was migrated")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, err = Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatalf("after the first one closed: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("close twice: %v", err)
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.db")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]Config{
		"no path":           {},
		"unknown type":      {Type: "oracle"},
		"no folder":         {Path: filepath.Join(dir, "none", "moothall.db")},
		"a folder":          {Path: dir},
		"not a database":    {Path: garbage},
		"nothing to read":   {Path: filepath.Join(dir, "none.db"), ReadOnly: true},
		"a bad address":     {Type: TypePostgres, URI: "postgres://u:secret@[::1"},
		"no server":         {Type: TypePostgres, URI: "postgres://u:secret@127.0.0.1:1/moothall"},
		"a NUL in the path": {Path: filepath.Join(dir, "a\x00b")},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), cfg)
			if err == nil {
				t.Fatal("it opened", s.Close())
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the password is in %q", err)
			}
			if cfg.Path != "" && !strings.Contains(err.Error(), filepath.Base(cfg.Path)) {
				t.Errorf("%q does not name the file", err)
			}
		})
	}
	if err := Check(t.Context(), Config{Path: filepath.Join(dir, "new.db")}); err != nil {
		t.Errorf("a file that can be made: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new.db")); err == nil {
		t.Error("checking made the file")
	}
	if err := Check(t.Context(), Config{Path: filepath.Join(dir, "none", "new.db")}); err == nil {
		t.Error("a folder that is not there was fine")
	}
	if err := Check(t.Context(), Config{Path: garbage}); err == nil {
		t.Error("garbage was fine")
	}
}

// TestReadOnlyFiles plays a user without rights; root has all of them, so there
// the test runs itself again as nobody.
func TestReadOnlyFiles(t *testing.T) {
	if os.Getenv("STORE_TEST_DIR") == "" && os.Getuid() == 0 {
		asNobody(t)
		return
	}
	dir := os.Getenv("STORE_TEST_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(dir, "moothall.db")
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		_, err := Open(t.Context(), Config{Path: path})
		for _, err := range []error{err, Check(t.Context(), Config{Path: path})} {
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "cannot be written") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	refused("read-only file")
	if err := errors.Join(os.Chmod(path, 0o600), os.Remove(path+".lock"), os.Chmod(dir, 0o500)); err != nil {
		t.Fatal(err)
	}
	refused("read-only folder")
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

func asNobody(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "moothall-store") //nolint:usetesting // the folders above t.TempDir are closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	const nobody = 65534
	bin, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "store.test")
	inner := filepath.Join(dir, "data")
	if err := errors.Join(os.WriteFile(exe, bin, 0o755), os.Chmod(dir, 0o755), os.Mkdir(inner, 0o700), os.Chown(inner, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestReadOnlyFiles$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "STORE_TEST_DIR="+inner, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// The pragmas really are in force, on the writer and on the readers.
func TestPragmas(t *testing.T) {
	s, err := Open(t.Context(), Config{Path: filepath.Join(t.TempDir(), "moothall.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for pragma, want := range map[string][2]string{
		"journal_mode": {"wal", "wal"}, "synchronous": {"2", "2"}, "foreign_keys": {"1", "1"}, "busy_timeout": {"5000", "5000"},
		"query_only": {"0", "1"}, "cache_size": {"-16384", "-16384"}, "temp_store": {"2", "2"},
	} {
		var writer, reader string
		err := errors.Join(
			s.db.QueryRow(t.Context(), "PRAGMA "+pragma).Scan(&writer),
			s.ro.QueryRow(t.Context(), "PRAGMA "+pragma).Scan(&reader))
		if err != nil || writer != want[0] || reader != want[1] {
			t.Errorf("%s: writer %s, reader %s, error %v; want %v", pragma, writer, reader, err, want)
		}
	}
}

func TestWithoutTxnKeepsTheRest(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := WithoutTxn(ctx)
	cancel()
	if out.Err() == nil {
		t.Error("the cancellation was lost")
	}
}
