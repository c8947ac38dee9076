package store_test

import (
	"path/filepath"
	"testing"

	"moothall/internal/pgtest"
	"moothall/store"
)

// Only one process at a time may take every lease in the database for dead.
func TestAlone(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		s := open(t, store.Config{Path: filepath.Join(t.TempDir(), "moothall.db")})
		wantAlone(t, s, true)
	})
	t.Run("postgres", func(t *testing.T) {
		cfg := store.Config{Type: store.TypePostgres, URI: pgtest.DSN(t)}
		first, second := open(t, cfg), open(t, cfg)
		wantAlone(t, first, true)
		wantAlone(t, first, true)
		wantAlone(t, second, false)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		wantAlone(t, second, true)
		// Whoever comes later still opens the database, and is not alone.
		wantAlone(t, open(t, cfg), false)
	})
}

func open(t *testing.T, cfg store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func wantAlone(t *testing.T, s *store.Store, want bool) {
	t.Helper()
	got, err := s.Alone(t.Context())
	if err != nil || got != want {
		t.Errorf("alone %v, %v; want %v", got, err, want)
	}
}
