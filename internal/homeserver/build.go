package homeserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Binaries are the programs of the test homeserver, as paths.
type Binaries struct {
	Dendrite     string
	GenerateKeys string
}

const (
	progressEvery = 5 * time.Second
	lockEvery     = 200 * time.Millisecond
	// buildGrace is how long an interrupted go command may tidy up.
	buildGrace = 5 * time.Second
)

// Build compiles the test homeserver that the testbed module pins, unless that
// was done before: the result is kept in the user's cache folder, or in .cache
// beside this module's go.mod if there is none. A first build takes minutes and
// tells out how it goes; later calls say nothing and return at once. Several
// processes may call it together: one builds, the others wait.
//
// It needs the go command, a working directory inside this module and, the
// first time, the module proxy. An error means that no homeserver can be had.
func Build(ctx context.Context, out io.Writer) (bin Binaries, err error) {
	if out == nil {
		out = io.Discard
	}
	root, err := moduleRoot()
	if err != nil {
		return Binaries{}, fmt.Errorf("build homeserver: %w", err)
	}
	testbed := filepath.Join(root, "testbed")
	name, err := buildName(ctx, testbed)
	if err != nil {
		return Binaries{}, fmt.Errorf("build homeserver: %w", err)
	}
	cache, err := cacheDir(root)
	if err != nil {
		return Binaries{}, fmt.Errorf("build homeserver: %w", err)
	}
	dir := filepath.Join(cache, name)
	if bin, ok := built(dir); ok {
		return bin, nil
	}
	say := progress{out: out, start: time.Now()}
	lock, err := say.awaitLock(ctx, dir+".lock")
	if err != nil {
		return Binaries{}, fmt.Errorf("build homeserver: %w", err)
	}
	defer func() { _ = lock.Close() }()
	if bin, ok := built(dir); ok { // by whom we waited for
		return bin, nil
	}
	if err := say.compile(ctx, testbed, dir); err != nil {
		return Binaries{}, fmt.Errorf("build homeserver: %w", err)
	}
	bin, ok := built(dir)
	if !ok {
		return Binaries{}, fmt.Errorf("build homeserver: %s made no dendrite or generate-keys", testbed)
	}
	return bin, nil
}

// built returns the binaries in dir, if they are there.
func built(dir string) (Binaries, bool) {
	bin := Binaries{
		Dendrite:     filepath.Join(dir, "dendrite"),
		GenerateKeys: filepath.Join(dir, "generate-keys"),
	}
	for _, path := range []string{bin.Dendrite, bin.GenerateKeys} {
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			return Binaries{}, false
		}
	}
	return bin, true
}

// moduleRoot is the folder of this module's go.mod, at or above the working
// directory.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if declaresModule(filepath.Join(at, "go.mod")) {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("no go.mod of module moothall at or above %s", dir)
		}
	}
}

func declaresModule(path string) bool {
	b, err := os.ReadFile(path) //nolint:gosec // a go.mod above the working directory
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "module" {
			return f[1] == "moothall"
		}
	}
	return false
}

// buildName names a build after everything that goes into it.
func buildName(ctx context.Context, testbed string) (string, error) {
	h := sha256.New()
	for _, file := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(testbed, file)) //nolint:gosec // a file of this module
		if err != nil {
			return "", err
		}
		_, _ = h.Write(b) // a hash never fails
	}
	cmd := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	cmd.Dir = testbed
	version, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ask the go command for its version: %w", err)
	}
	_, _ = h.Write(version)
	_, _ = io.WriteString(h, runtime.GOOS+"/"+runtime.GOARCH)
	return "testbed-" + hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// cacheDir is the first folder that can be written to.
func cacheDir(root string) (string, error) {
	var faults []error
	user, err := os.UserCacheDir()
	if err == nil {
		user = filepath.Join(user, "moothall")
		if err = writable(user); err == nil {
			return user, nil
		}
	}
	faults = append(faults, err)
	own := filepath.Join(root, ".cache")
	if err = writable(own); err == nil {
		return own, nil
	}
	return "", fmt.Errorf("no cache folder: %w", errors.Join(append(faults, err)...))
}

// writable makes dir and tries to write there.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, "try-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// progress tells a waiting person how long this has taken.
type progress struct {
	out   io.Writer
	start time.Time
}

func (p progress) say(text string) {
	_, _ = fmt.Fprintf(p.out, "%s (%d s)\n", text, int(time.Since(p.start).Seconds())) // only news
}

// every calls say each few seconds until the returned function is called.
func (p progress) every(text string) (stop func()) {
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.say(text)
			case <-done:
				return
			}
		}
	}()
	return func() { close(done); <-gone }
}

// awaitLock waits for whoever builds the same.
func (p progress) awaitLock(ctx context.Context, path string) (*os.File, error) {
	lock, err := tryLock(path)
	if lock != nil || err != nil {
		return lock, err
	}
	defer p.every("Waiting for another process that builds the test homeserver")()
	tick := time.NewTicker(lockEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if lock, err := tryLock(path); lock != nil || err != nil {
				return lock, err
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another build: %w", ctx.Err())
		}
	}
}

// compile builds the tools of testbed into dir, which exists afterwards only if
// all of them were built.
func (p progress) compile(ctx context.Context, testbed, dir string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "building-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()

	p.say("Building the test homeserver, once: a few minutes on a machine that never did")
	stop := p.every("Building the test homeserver")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", tmp+string(os.PathSeparator), "tool") //nolint:gosec // our own folder
	cmd.Dir = testbed
	// Without cgo no C compiler is needed. An outer workspace would not know the
	// testbed.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = buildGrace
	text, err := cmd.CombinedOutput()
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("go build in %s: %w: %s", testbed, err, lastBytes(text))
	}
	if err := os.RemoveAll(dir); err != nil { // incomplete, or we would not be here
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	p.say("Built the test homeserver")
	return nil
}

func lastBytes(b []byte) []byte {
	b = bytes.TrimSpace(b)
	return b[max(0, len(b)-quotedBytes):]
}
