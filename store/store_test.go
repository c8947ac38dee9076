package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.mau.fi/util/dbutil"

	"moothall/internal/pgtest"
	"moothall/store"
	"moothall/store/storetest"
)

func TestMain(m *testing.M) {
	dbutil.ForceDeadlockDetection = true // a query that forgets its transaction panics
	os.Exit(pgtest.Main(m))
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Config {
		t.Helper()
		t.Log("engine: sqlite") // counted by internal/tally
		return store.Config{Path: filepath.Join(t.TempDir(), "moothall.db")}
	})
}

func TestPostgres(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Config {
		t.Helper()
		return store.Config{Type: store.TypePostgres, URI: pgtest.DSN(t)}
	})
}
