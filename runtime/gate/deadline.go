package gate

import (
	"context"
	"sync"
	"time"
)

// deadline is a context that ends after a while, as one of
// [context.WithTimeoutCause] does, or with a cause when it is told to, as one of
// [context.WithCancelCause] does. It sets its timer and listens to its parent only
// when somebody wants to wait for it: most calls are over before anybody does.
type deadline struct {
	context.Context           // the parent
	at              time.Time // zero: no deadline of its own
	cause           error

	mu      sync.Mutex
	timed   context.Context //nolint:containedctx // made when it is asked for
	cancel  context.CancelCauseFunc
	stopped bool
	why     error // it was stopped
}

// withDeadline gives a context that ends after d with cause, or with ctx, or when
// stop is called.
func withDeadline(ctx context.Context, d time.Duration, cause error) (c context.Context, stop func()) {
	l := &deadline{Context: ctx, at: time.Now().Add(d), cause: cause}
	if before, ok := ctx.Deadline(); ok && before.Before(l.at) {
		l.at, l.cause = before, nil // the parent ends first, and says why
	}
	return l, func() { l.end(nil) }
}

// withEnd gives a context that ends with ctx, or when it is told to.
func withEnd(ctx context.Context) (context.Context, *deadline) {
	l := &deadline{Context: ctx}
	return l, l
}

// Deadline implements [context.Context].
func (l *deadline) Deadline() (time.Time, bool) {
	if l.at.IsZero() {
		return l.Context.Deadline()
	}
	return l.at, true
}

// Done implements [context.Context].
func (l *deadline) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.real().Done()
}

// real gives the context that can be waited for. The lock is held.
func (l *deadline) real() context.Context {
	if l.timed != nil {
		return l.timed
	}
	if l.at.IsZero() {
		l.timed, l.cancel = context.WithCancelCause(l.Context)
	} else {
		timed, cancel := context.WithDeadlineCause(l.Context, l.at, l.cause)
		l.timed, l.cancel = timed, func(error) { cancel() }
	}
	if l.stopped {
		l.cancel(l.why)
	}
	return l.timed
}

// Err implements [context.Context].
func (l *deadline) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timed == nil && !l.stopped && l.Context.Err() == nil && (l.at.IsZero() || time.Until(l.at) > 0) {
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

// end stops it, with why as the cause where it has no deadline. Only the first
// time counts.
func (l *deadline) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	l.stopped, l.why = true, why
	if l.cancel != nil {
		l.cancel(why)
	}
}
