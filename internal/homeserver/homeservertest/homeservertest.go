// Package homeservertest gives tests a real homeserver.
//
// A test that cannot have one is skipped and says why. Where it must not be,
// set MOOTHALL_REQUIRE to a comma-separated list that has "dendrite" in it: then
// it fails instead.
package homeservertest

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"moothall/internal/homeserver"
)

// stopTimeout bounds the end of a test's homeserver.
const stopTimeout = 15 * time.Second

// ForTest returns the homeserver's programs. The first call on a machine builds
// them, which takes minutes.
func ForTest(tb testing.TB) homeserver.Binaries {
	tb.Helper()
	bin, err := homeserver.Build(tb.Context(), os.Stderr)
	if err == nil {
		tb.Log("engine: dendrite") // counted by internal/tally
		return bin
	}
	if required("dendrite") {
		tb.Fatalf("MOOTHALL_REQUIRE asks for dendrite: %v", err)
	}
	tb.Skipf("no homeserver to test with: %v", err)
	return bin
}

// Start runs a homeserver until the test ends. Options without Dir get a
// temporary one, options without Binaries those of [ForTest]. The test fails if
// the homeserver does not start or has died by itself when the test ends.
func Start(tb testing.TB, o homeserver.Options) *homeserver.Server {
	tb.Helper()
	if o.Binaries == (homeserver.Binaries{}) {
		o.Binaries = ForTest(tb)
	}
	if o.Dir == "" {
		o.Dir = tb.TempDir()
	}
	s, err := homeserver.New(o)
	if err != nil {
		tb.Fatalf("configure homeserver: %v", err)
	}
	if err := s.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// The test's own context has ended by now.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), stopTimeout)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func required(what string) bool {
	list := strings.Split(os.Getenv("MOOTHALL_REQUIRE"), ",")
	return slices.ContainsFunc(list, func(s string) bool { return strings.TrimSpace(s) == what })
}
