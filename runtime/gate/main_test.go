package gate_test

import (
	"os"
	"testing"

	"moothall/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
