package homeserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	// startTimeout is far above the second or two a start takes on a busy machine.
	startTimeout = 60 * time.Second
	stopTimeout  = 10 * time.Second
	probeEvery   = 15 * time.Millisecond
	probeTimeout = 2 * time.Second

	quotedLines = 15
	quotedBytes = 4 << 10
)

// Start runs the homeserver and returns when it answers clients. ctx and a
// minute bound the wait; they do not bound the life of the homeserver. An error
// means that nothing runs, and quotes the end of the log if there is one.
func (s *Server) Start(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.start(ctx)
}

func (s *Server) start(ctx context.Context) error {
	if s.PID() != 0 {
		return errors.New("start homeserver: it is running")
	}
	// Without this the probe below could be answered by somebody else.
	if err := portFree(ctx, s.opts.Port); err != nil {
		return fmt.Errorf("start homeserver: its port is taken: %w", err)
	}
	log, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start homeserver: open log: %w", err)
	}
	defer func() { _ = log.Close() }() // the child has its own
	from, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("start homeserver: open log: %w", err)
	}
	c, err := s.spawn(ctx, log)
	if err != nil {
		return fmt.Errorf("start homeserver: %w", err)
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.awaitReady(ctx, c); err != nil {
		s.Kill()
		return fmt.Errorf("start homeserver: %w%s", err, logTail(s.LogFile(), from))
	}
	return nil
}

// Stop ends the homeserver and waits for its end: politely, and after ten
// seconds or when ctx ends by force. Stopping what does not run is no error. It
// is one if the homeserver had to be forced, or had died by itself before.
func (s *Server) Stop(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.stop(ctx)
}

func (s *Server) stop(ctx context.Context) error {
	c := s.take()
	if c == nil {
		return nil
	}
	if c.ended() {
		return fmt.Errorf("stop homeserver: it died by itself: %w%s", c.cause(), logTail(s.LogFile(), 0))
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	_ = c.proc.Signal(syscall.SIGTERM) // it may have ended just now
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		c.kill()
		return fmt.Errorf("stop homeserver: killed: %w", ctx.Err())
	}
}

// Kill ends the homeserver as a crash would, and waits for its end. It does
// nothing if the homeserver does not run. It also ends a Start that is waiting.
func (s *Server) Kill() {
	if c := s.take(); c != nil {
		c.kill()
	}
}

// Restart is [Server.Stop] followed by [Server.Start]. If the stop reports an
// error the homeserver is started all the same, and the error is returned.
func (s *Server) Restart(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return errors.Join(s.stop(ctx), s.start(ctx))
}

// PID is the homeserver's process id, 0 if it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child == nil || s.child.ended() {
		return 0
	}
	return s.child.proc.Pid
}

// RSS is the memory the homeserver holds now, in bytes. It is 0 if the
// homeserver does not run or the system does not tell.
func (s *Server) RSS() int64 {
	pid := s.PID()
	if pid == 0 {
		return 0
	}
	return residentBytes(pid)
}

// take makes the running child the caller's to end.
func (s *Server) take() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.child
	s.child = nil
	return c
}

// child is one run of the homeserver.
type child struct {
	proc *os.Process
	done chan struct{} // closed when the process has ended and was waited for
	err  error         // how it ended; read after done
}

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *child) cause() error {
	if c.err == nil {
		return errors.New("exit status 0")
	}
	return c.err
}

func (c *child) kill() {
	_ = c.proc.Kill() // it may have ended just now
	<-c.done
}

// spawn starts the process. It holds the folder's lock for as long as the
// process lives, even if this one dies: the lock belongs to the open file, and
// the child has it too.
func (s *Server) spawn(ctx context.Context, log *os.File) (*child, error) {
	lock, err := tryLock(s.opts.Dir + string(os.PathSeparator) + lockFile)
	if err != nil {
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	if lock == nil {
		return nil, fmt.Errorf("another homeserver runs in %s", s.opts.Dir)
	}
	defer func() { _ = lock.Close() }()

	// The caller's ctx is for the start only.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.opts.Binaries.Dendrite, //nolint:gosec // our own build
		"--config", configFile, "--http-bind-address", s.address())
	cmd.Dir = s.opts.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = childAttr()

	c := &child{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// "Die with the parent" follows the thread that started the child, not
		// the process, and Go may end an idle thread at any time. So one thread
		// starts the child and stays until its end.
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

// awaitReady returns when the client API answers, the child ends or ctx does.
func (s *Server) awaitReady(ctx context.Context, c *child) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		if s.answers(ctx) {
			if c.ended() {
				return fmt.Errorf("it exited: %w", c.cause())
			}
			return nil
		}
		select {
		case <-tick.C:
		case <-c.done:
			return fmt.Errorf("it exited: %w", c.cause())
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", ctx.Err())
		}
	}
}

func (s *Server) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL()+"/_matrix/client/versions", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// logTail quotes the last lines of a log for an error, not reaching back beyond
// the offset from. It is empty if there is nothing to quote.
func logTail(path string, from int64) string {
	f, err := os.Open(path) //nolint:gosec // the homeserver's own log
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	b := make([]byte, min(end-from, quotedBytes))
	if len(b) == 0 {
		return ""
	}
	n, err := f.ReadAt(b, end-int64(len(b)))
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(b[:n]), []byte("\n"))
	lines = lines[max(0, len(lines)-quotedLines):]
	text := strings.ToValidUTF8(string(bytes.Join(lines, []byte("\n\t"))), "?")
	return "; the log ends:\n\t" + text
}
