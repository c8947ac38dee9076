package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"moothall/store"
)

// startGoal is how fast a start has to be.
const startGoal = 300 * time.Millisecond

// Start to /ready on an existing database.
func TestE2EStartIsQuick(t *testing.T) {
	w := newWorld(t, "sqlite")
	w.bot.start() // makes the database and the account
	var took []time.Duration
	for range 5 {
		if code := w.bot.stop(5 * time.Second); code != exitOK {
			t.Fatalf("exit code %d", code)
		}
		took = append(took, w.bot.start())
	}
	slices.Sort(took)
	t.Logf("start to /ready: median %s of %v", took[2], took)
	if took[2] > startGoal {
		t.Errorf("start to /ready takes %s, the goal is %s", took[2], startGoal)
	}
}

// A homeserver that is down at the start: the bot is alive, not ready, says that
// it tries again, and is ready when the homeserver is there.
func TestE2EC134HomeserverDownAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "sqlite")
	if err := w.hs.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.bot.launch()
	w.bot.awaitStatus("/live", http.StatusOK)
	for range 20 {
		if got := w.bot.status("/ready"); got != http.StatusServiceUnavailable {
			t.Fatalf("/ready is %d while the homeserver is down", got)
		}
		pause(t.Context(), 50*time.Millisecond)
	}
	if got := w.bot.status("/live"); got != http.StatusOK {
		t.Errorf("/live is %d while the homeserver is down", got)
	}
	if n := strings.Count(w.bot.log(), "The homeserver does not answer, trying again"); n < 2 {
		t.Errorf("the log says %d times that it tries again", n)
	}
	if err := w.hs.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.bot.awaitStatus("/ready", http.StatusOK)
	if code := w.bot.stop(5 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// A token that the homeserver does not know ends the program with one sentence
// that says what to do.
func TestE2EWrongToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "sqlite")
	w.bot.launch("MOOTHALL_APPSERVICE__AS_TOKEN="+strings.Repeat("x", 64), "MOOTHALL_LOGGING__LEVEL=error")
	if code := w.bot.ended(10 * time.Second); code != exitToken {
		t.Errorf("exit code %d, want %d", code, exitToken)
	}
	oneSentence(t, w.bot.log(), w.hs.URL(), "does not accept the as_token", "moothall registration")
}

// oneSentence: one line, and it has all of the parts.
func oneSentence(t *testing.T, text string, parts ...string) {
	t.Helper()
	if strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "moothall: ") {
		t.Errorf("want one line of text, have %q", text)
	}
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("want %q in %q", part, text)
		}
	}
}

// SIGTERM while a tool runs: it may end, its result is told, once; one that does
// not end is cut short, and what is not known of it is said.
func TestE2EC133StopWhileToolRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "sqlite").peopled()
	begin := func(name string) *request {
		w.touch("hold", "")
		r := w.ask(name).carded()
		w.alice.react(w.room, r.card.ID, yes)
		for w.count(r.note) == 0 && t.Context().Err() == nil {
			pause(t.Context(), 10*time.Millisecond)
		}
		return r
	}
	r := begin("ends")
	resume := w.quiet()
	done := time.AfterFunc(500*time.Millisecond, func() { _ = os.Remove(w.path("hold")) })
	defer done.Stop()
	began := time.Now()
	if code := w.bot.stop(5 * time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	t.Logf("SIGTERM to the end, with a tool that takes 500 ms more: %s", time.Since(began))
	w.bot.start()
	resume()
	r.approved(w.alice)

	endless := begin("endless")
	resume = w.quiet()
	began = time.Now()
	if code := w.bot.stop(drainFor + 5*time.Second); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	t.Logf("SIGTERM to the end, with a tool that does not end: %s", time.Since(began))
	w.remove("hold")
	w.bot.start()
	resume()
	endless.unknown()
	pause(t.Context(), settling)
	r.ran(1)
	endless.ran(1)
	r.once("Approval needed", "Written down.")
	if got := w.alice.all(post(endless.root)); len(got) != 2 {
		t.Errorf("want a card and a notice:%s", summary(got))
	}
}

// What cannot be a database, or is a newer program's, is refused with one
// sentence that names the file. Nothing needs a homeserver for that.
func TestDatabaseRefused(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		make func(t *testing.T, path string) (file string)
		says string
	}{
		{"a folder in its place", func(t *testing.T, path string) string {
			t.Helper()
			mkdir(t, path, 0o700)
			return path
		}, ""},
		{"below a file", func(t *testing.T, path string) string {
			t.Helper()
			write(t, path, "")
			return filepath.Join(path, "moothall.db")
		}, ""},
		{"no folder", func(_ *testing.T, path string) string { return filepath.Join(path, "moothall.db") }, "folder"},
		{"no database", func(t *testing.T, path string) string {
			t.Helper()
			write(t, path, strings.Repeat("This is no database. ", 100))
			return path
		}, "is not a sound SQLite database"},
		{"newer", func(t *testing.T, path string) string {
			t.Helper()
			s, err := store.Open(t.Context(), store.Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Handle().Exec(context.WithoutCancel(t.Context()), `UPDATE schema_version SET version=999`)
			if err != nil || s.Close() != nil {
				t.Fatal(err)
			}
			return path
		}, "is at schema version 999"},
		{"read-only", func(t *testing.T, path string) string {
			t.Helper()
			if os.Geteuid() == 0 {
				return "/sys/moothall.db" // where not even root may make a file
			}
			mkdir(t, path, 0o500)
			return filepath.Join(path, "moothall.db")
		}, "cannot be written: give this user write access"},
		{"in use", func(t *testing.T, path string) string {
			t.Helper()
			s, err := store.Open(t.Context(), store.Config{Path: path})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return path
		}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := tt.make(t, filepath.Join(dir, "database"))
			var out, stderr strings.Builder
			args := []string{"init", "--homeserver", "http://127.0.0.1:1", "--domain", e2eDomain, "--dir", dir}
			if code := run(t.Context(), args, nil, &out, &out); code != exitOK {
				t.Fatalf("moothall init: exit %d: %s", code, out.String())
			}
			environ := []string{"MOOTHALL_DATABASE__PATH=" + file, "MOOTHALL_LOGGING__LEVEL=error"}
			code := run(t.Context(), []string{"serve", "-c", filepath.Join(dir, "config.yaml")}, environ, &out, &stderr)
			if code != exitDatabase {
				t.Errorf("exit %d, want %d", code, exitDatabase)
			}
			oneSentence(t, stderr.String(), file, tt.says)
		})
	}
}

func mkdir(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Mkdir(path, mode); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
