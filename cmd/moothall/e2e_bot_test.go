package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"moothall/cmd/moothall/config"
	"moothall/runtime/capability"
)

// botProgram is the name under which the test binary, started again, is the
// service with the test's tool and the test's faults.
const botProgram = "moothall-under-test"

// How a test speaks to that process. The values are paths of files.
const (
	envCounter = "MOOTHALL_TEST_COUNTER" // the tool appends a line here
	envTrap    = "MOOTHALL_TEST_TRAP"    // while it is there: where to die, see trap
	envHold    = "MOOTHALL_TEST_HOLD"    // while it is there, the tool does not end
	envLease   = "MOOTHALL_TEST_LEASE"   // a duration
)

func botMain() {
	go func() {
		// The parent holds the other end; when it is gone, so are we.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(99)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := bot(ctx)
	stop()
	os.Exit(code)
}

func bot(ctx context.Context) int {
	c, err := config.Load(os.Getenv(config.EnvConfig), os.Environ())
	if err != nil {
		return fail(os.Stderr, err)
	}
	log, done, err := newLogger(c, os.Stderr)
	if err != nil {
		return fail(os.Stderr, err)
	}
	defer done()
	lease, err := time.ParseDuration(os.Getenv(envLease))
	if err != nil {
		return fail(os.Stderr, err)
	}
	tr := &trap{file: os.Getenv(envTrap)}
	err = serve(log.WithContext(ctx), c, extras{tools: []*capability.Capability{counter(tr)}, fault: tr.step, lease: lease})
	if err != nil {
		return fail(os.Stderr, err)
	}
	return exitOK
}

type countIn struct {
	Note string `json:"note" jsonschema:"what to write down"`
}

type countOut struct {
	Say string `json:"say"`
}

// counter is the tool: what it did is a line in a file outside the database, on
// disk before the tool says that it is done.
func counter(tr *trap) *capability.Capability {
	return capability.Define("test.count", capability.Meta{
		Description: "Write one line.", Expose: []capability.Surface{capability.SurfaceCommand},
		SideEffect: capability.SideEffectWrite, Risk: capability.RiskMedium,
		Approval: capability.Approval{Required: true},
	}, func(ctx context.Context, rt *capability.Context, in countIn) (countOut, error) {
		if err := appendLine(os.Getenv(envCounter), rt.User.MatrixUserID+" "+in.Note); err != nil {
			return countOut{}, err
		}
		if err := tr.step("tool"); err != nil {
			return countOut{}, err
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for exists(os.Getenv(envHold)) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return countOut{}, ctx.Err()
			}
		}
		return countOut{"Written down."}, nil
	})
}

func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Sync(), f.Close())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// trap kills its own process at a named step, once: the file that names the step
// is removed first. The file holds "step", "step:n" for the n-th since the file
// is there, or "after>step:n" for the n-th after another step; or "fail step",
// and then every such step fails for as long as the file is there.
//
// Steps are those of store.Config.Fault, right before their commit, and "tool",
// after the tool's effect.
type trap struct {
	file string

	mu    sync.Mutex
	plan  string
	after bool // the step before > was seen
	seen  int
}

func (tr *trap) step(name string) error {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	raw, err := os.ReadFile(tr.file)
	if err != nil {
		return nil // no trap is set
	}
	if plan := string(raw); plan != tr.plan {
		tr.plan, tr.after, tr.seen = plan, false, 0
	}
	if step, ok := strings.CutPrefix(tr.plan, "fail "); ok {
		if step == name {
			return errors.New("the test makes this step fail")
		}
		return nil
	}
	after, step, ok := strings.Cut(tr.plan, ">")
	if !ok {
		after, step, tr.after = "", tr.plan, true
	}
	step, count, _ := strings.Cut(step, ":")
	n, err := strconv.Atoi(count)
	if err != nil {
		n = 1
	}
	switch {
	case !tr.after:
		tr.after = name == after
	case name == step:
		tr.seen++
	}
	if tr.seen < n {
		return nil
	}
	if err := os.Remove(tr.file); err != nil {
		return err
	}
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	_ = self.Kill()
	select {} // SIGKILL is on its way
}
