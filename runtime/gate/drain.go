package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// drainLimit bounds a drain whose context has no deadline.
	drainLimit = 5 * time.Second
	// maxFailures is how many failures a scope keeps word for word.
	maxFailures = 100
)

// ErrUndelivered means that a drain ended before everything was delivered.
var ErrUndelivered = errors.New("audit is not fully delivered")

// scope counts what is on its way to the sinks for one view of the gate.
type scope struct {
	mu       sync.Mutex
	events   int // handed to a sink and not yet taken, once for each sink
	handlers int // given up and still running: their end is yet to be audited
	failures []error
	more     int           // failures beyond those
	changed  chan struct{} // closed at the next change; nil while nobody waits
}

func (s *scope) begin(n int) { s.add(n, 0) }

func (s *scope) add(events, handlers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events += events
	s.handlers += handlers
	s.wake()
}

// wake tells whoever waits. The lock is held.
func (s *scope) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *scope) end(err error, ev *Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events--
	if err != nil {
		s.fail(fmt.Errorf("%s of %s: %w", ev.Type, ev.ExecutionID, err))
	}
	s.wake()
}

// fail keeps a failure for the next drain. The lock is held.
func (s *scope) fail(err error) {
	if len(s.failures) < maxFailures {
		s.failures = append(s.failures, err)
		return
	}
	s.more++
}

func (s *scope) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(err)
}

// watch gives a channel that is closed at the next change.
func (s *scope) watch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *scope) left() (events, handlers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.events, s.handlers
}

// take gives the failures since the last drain.
func (s *scope) take() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.failures
	if s.more > 0 {
		out = append(out, fmt.Errorf("and %d more", s.more))
	}
	s.failures, s.more = nil, 0
	return out
}

// Scope gives a view of the same gate (governance, ledger, sinks, runs) whose
// [Gate.Drain] waits only for what went through it: one for a request, so that
// its end does not wait for others.
func (g *Gate) Scope() *Gate { return g.open() }

// Drain waits until every event of this scope is delivered, the late end of a
// handler whose call was given up included, and has the sinks flushed. Every
// event that a sink did not take since the last drain comes back, joined. If ctx
// ends first (5 s where it has no deadline) it is [ErrUndelivered] and says how
// many are left.
func (g *Gate) Drain(ctx context.Context) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, drainLimit)
		defer cancel()
	}
	var faults []error
	for {
		changed := g.scope.watch()
		flushed, err := g.trail.flush(ctx)
		if err != nil {
			faults = append(faults, err)
		}
		events, handlers := g.scope.left()
		if flushed && events == 0 && handlers == 0 {
			return errors.Join(append(faults, g.scope.take()...)...)
		}
		select {
		case <-changed:
			if ctx.Err() == nil {
				continue
			}
		case <-ctx.Done():
		}
		events, handlers = g.scope.left()
		left := fmt.Errorf("%w: %d events and %d running handlers are left: %w", ErrUndelivered, events, handlers, context.Cause(ctx))
		return errors.Join(append(append([]error{left}, faults...), g.scope.take()...)...)
	}
}

// flush has every sink that keeps something back give it out, after what it was
// handed so far. ok is false if one has not done so when ctx ends.
func (t *trail) flush(ctx context.Context) (ok bool, err error) {
	n := 0
	done := make(chan error, len(t.lines))
	for _, l := range t.lines {
		if _, can := l.sink.(Flusher); can {
			l.push(item{flush: ctx, done: done})
			n++
		}
	}
	var faults []error
	for range n {
		select {
		case err := <-done:
			if err != nil {
				faults = append(faults, fmt.Errorf("flush: %w", err))
			}
		case <-ctx.Done():
			return false, errors.Join(faults...)
		}
	}
	return true, errors.Join(faults...)
}
