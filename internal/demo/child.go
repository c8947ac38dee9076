package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	readyTimeout = 60 * time.Second
	readyEvery   = 5 * time.Millisecond
	stopTimeout  = 20 * time.Second // above what the bot allows itself
	quotedLines  = 5
)

// bot is the real program, run as an operator would. It belongs to one
// goroutine.
type bot struct {
	program  string
	config   string
	logFile  string
	readyURL string
	died     func(error) // told when a run ends that nobody ended
	child    *child
	ready    time.Duration // from the last start to ready
	memory   int64         // resident bytes, when last measured; 0: unknown
}

// child is one run of the bot.
type child struct {
	proc  *os.Process
	done  chan struct{} // closed when the process has ended
	err   error         // how it ended; read after done
	asked chan struct{} // closed before we end it
}

// start runs the bot and waits until it is ready. extra are environment
// variables on top of a clean environment.
func (b *bot) start(ctx context.Context, extra ...string) error {
	log, err := os.OpenFile(b.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the bot's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	// ctx bounds the start, not the life.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.program, "serve", "-c", b.config) //nolint:gosec // our own build
	cmd.Env = append(cleanEnviron(), extra...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()

	began := time.Now()
	c, err := spawn(cmd)
	if err != nil {
		return fmt.Errorf("start the bot: %w", err)
	}
	b.child = c
	if err := b.awaitReady(ctx, c); err != nil {
		b.kill()
		return fmt.Errorf("start the bot: %w", err)
	}
	b.ready = time.Since(began)
	go func() {
		select {
		case <-c.asked:
		case <-c.done:
			select {
			case <-c.asked: // both at once
			default:
				b.died(fmt.Errorf("the bot ended by itself: %s%s", c.how(), b.lastWords()))
			}
		}
	}()
	return nil
}

// awaitReady asks until the bot says that it is ready.
func (b *bot) awaitReady(ctx context.Context, c *child) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		if answersOK(ctx, b.readyURL) {
			return nil
		}
		select {
		case <-tick.C:
		case <-c.done:
			return fmt.Errorf("it ended: %s%s", c.how(), b.lastWords())
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", b.readyURL, ctx.Err())
		}
	}
}

func answersOK(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// measure notes the bot's memory.
func (b *bot) measure() {
	if b.child != nil {
		b.memory = residentBytes(b.child.proc.Pid)
	}
}

// kill ends the bot as a crash would.
func (b *bot) kill() {
	if c := b.take(); c != nil {
		_ = c.proc.Kill() // it may have ended just now
		<-c.done
	}
}

// stop ends the bot as an operator would. It is an error if it has to be killed
// or reports a failure.
func (b *bot) stop(ctx context.Context) error {
	c := b.take()
	if c == nil {
		return nil
	}
	_ = c.proc.Signal(syscall.SIGTERM) // it may have ended just now
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	select {
	case <-c.done:
		if c.err != nil {
			return fmt.Errorf("stop the bot: it ended with %s", c.how())
		}
		return nil
	case <-ctx.Done():
		_ = c.proc.Kill()
		<-c.done
		return errors.New("stop the bot: it had to be killed")
	}
}

// lastWords quotes the end of the log for an error. The log holds no secrets.
func (b *bot) lastWords() string {
	text, err := os.ReadFile(b.logFile)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = lines[max(0, len(lines)-quotedLines):]
	return "; its log ends:\n    " + strings.Join(lines, "\n    ")
}

// take makes the running child the caller's to end.
func (b *bot) take() *child {
	c := b.child
	b.child = nil
	if c != nil {
		close(c.asked)
	}
	return c
}

func (c *child) how() string {
	if c.err == nil {
		return "exit status 0"
	}
	return c.err.Error()
}

// spawn starts cmd. "Die with the parent" follows the thread that started the
// child, and Go may end an idle thread at any time, so one thread starts the
// child and stays until its end.
func spawn(cmd *exec.Cmd) (*child, error) {
	c := &child{done: make(chan struct{}), asked: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		c.proc = cmd.Process
		started <- nil
		c.err = cmd.Wait()
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// cleanEnviron is our environment without the bot's own variables: they would
// change what it does.
func cleanEnviron() []string {
	var out []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "MOOTHALL_") {
			out = append(out, pair)
		}
	}
	return out
}
