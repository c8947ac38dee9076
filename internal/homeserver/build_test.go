package homeserver_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"moothall/internal/homeserver"
	"moothall/internal/homeserver/homeservertest"
)

func TestSecondBuildIsSilentAndQuick(t *testing.T) {
	want := homeservertest.ForTest(t)
	var out bytes.Buffer
	began := time.Now()
	got, err := homeserver.Build(t.Context(), &out)
	if err != nil || got != want || out.Len() > 0 {
		t.Errorf("got %v, error %v, said %q; want %v", got, err, &out, want)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("a build that was done took %v", d)
	}
}

// The compiler's own cache makes this quick.
func TestTwoBuildsAtOnce(t *testing.T) {
	homeservertest.ForTest(t) // or skip
	emptyCache(t)
	var (
		group sync.WaitGroup
		outs  [2]bytes.Buffer
		bins  [2]homeserver.Binaries
		errs  [2]error
	)
	for i := range bins {
		group.Go(func() { bins[i], errs[i] = homeserver.Build(t.Context(), &outs[i]) })
	}
	group.Wait()
	if errs[0] != nil || errs[1] != nil || bins[0] != bins[1] {
		t.Fatalf("got %v and %v, errors %v", bins[0], bins[1], errs)
	}
	said := outs[0].String() + outs[1].String()
	if n := strings.Count(said, "Building the test homeserver, once"); n != 1 {
		t.Errorf("%d of 2 built; they said:\n%s", n, said)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(bins[0].Dendrite)), "building-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestBuildEndsWithItsContext(t *testing.T) {
	homeservertest.ForTest(t)
	emptyCache(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := homeserver.Build(ctx, nil); err == nil {
		t.Error("built in less time than it takes")
	}
}

func TestBuildOutsideTheModule(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := homeserver.Build(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "module moothall") {
		t.Errorf("error %v; want one that names the module", err)
	}
}

// emptyCache gives the test a user cache folder of its own, while the go
// command keeps its caches.
func emptyCache(t *testing.T) {
	t.Helper()
	user, err := os.UserCacheDir()
	if err != nil {
		t.Skip(err)
	}
	if os.Getenv("GOCACHE") == "" {
		t.Setenv("GOCACHE", filepath.Join(user, "go-build"))
	}
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	if got, err := os.UserCacheDir(); err != nil || got != dir {
		t.Skip("the user cache folder cannot be moved here")
	}
}
