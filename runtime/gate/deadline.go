package gate

import (
	"context"
	"sync"
	"time"
)

// deadline is a context that ends after a while, as one of
// [context.WithTimeoutCause] does, but sets its timer only when somebody wants to
// wait for it: most calls are over before anybody does.
type deadline struct {
	context.Context // the parent
	at              time.Time
	cause           error

	mu      sync.Mutex
	timed   context.Context //nolint:containedctx // made when it is asked for
	cancel  context.CancelFunc
	stopped bool
}

// withDeadline gives a context that ends after d with cause, or with ctx, or when
// stop is called.
func withDeadline(ctx context.Context, d time.Duration, cause error) (c context.Context, stop func()) {
	l := &deadline{Context: ctx, at: time.Now().Add(d), cause: cause}
	if before, ok := ctx.Deadline(); ok && before.Before(l.at) {
		l.at, l.cause = before, nil // the parent ends first, and says why
	}
	return l, l.stop
}

func (l *deadline) Deadline() (time.Time, bool) { return l.at, true }

// Done implements [context.Context].
func (l *deadline) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.real().Done()
}

// real gives the context with the timer. The lock is held.
func (l *deadline) real() context.Context {
	if l.timed != nil {
		return l.timed
	}
	l.timed, l.cancel = context.WithDeadlineCause(l.Context, l.at, l.cause)
	if l.stopped {
		l.cancel()
	}
	return l.timed
}

// Err implements [context.Context].
func (l *deadline) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil && !l.stopped && l.Context.Err() == nil && time.Now().Before(l.at) {
		return nil
	}
	return l.real().Err()
}

// Value implements [context.Context]; the cause of the end is found through it.
func (l *deadline) Value(key any) any {
	l.mu.Lock()
	timed := l.timed
	l.mu.Unlock()
	if timed != nil {
		return timed.Value(key)
	}
	return l.Context.Value(key)
}

func (l *deadline) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	if l.cancel != nil {
		l.cancel()
	}
}
