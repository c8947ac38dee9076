package gate

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

const (
	// maxBacklog is how many events may wait for one sink.
	maxBacklog = 10_000
	// strictWait is how long a strict start waits for the sinks.
	strictWait = 10 * time.Second
)

var (
	errBacklog   = fmt.Errorf("the sink is %d events behind", maxBacklog)
	errUnaudited = errors.New("the start could not be audited, so there is none")
	errPanicked  = errors.New("the sink panicked")
)

// trail takes events to the sinks: a queue for each, served by one goroutine
// that lives while there is something in it.
type trail struct {
	strict bool
	lines  []*line
}

func newTrail(a Audit) *trail {
	t := &trail{strict: a.Strict}
	for _, s := range a.Sinks {
		t.lines = append(t.lines, &line{sink: s, onError: a.OnSinkError})
	}
	return t
}

// item is one event on its way to one sink, or a request to flush it.
type item struct {
	ev    Event
	scope *scope
	log   *zerolog.Logger
	done  chan<- error    // of a strict start
	flush context.Context //nolint:containedctx // the flush is asked for by somebody who waits with it
}

// emit hands an event to every sink and waits for none.
func (t *trail) emit(ctx context.Context, s *scope, ev Event) {
	if len(t.lines) == 0 {
		return
	}
	s.begin(len(t.lines))
	log := zerolog.Ctx(ctx)
	for _, l := range t.lines {
		l.push(item{ev: ev, scope: s, log: log})
	}
}

// take hands an event to every sink and waits until each has taken it.
func (t *trail) take(ctx context.Context, s *scope, ev Event) error {
	s.begin(len(t.lines))
	log := zerolog.Ctx(ctx)
	done := make(chan error, len(t.lines))
	for _, l := range t.lines {
		l.push(item{ev: ev, scope: s, log: log, done: done})
	}
	limit := time.NewTimer(strictWait)
	defer limit.Stop()
	var faults []error
	for range t.lines {
		select {
		case err := <-done:
			faults = append(faults, err)
		case <-limit.C:
			return fmt.Errorf("%w: a sink has not answered", errUnaudited)
		case <-ctx.Done():
			return fmt.Errorf("not begun: %w", ctx.Err())
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("%w: %w", errUnaudited, err)
	}
	return nil
}

// line is the queue of one sink.
type line struct {
	sink    Sink
	onError func(error, Event)

	// Of the goroutine that serves the queue: a context with the logger of the
	// event in hand. It holds nothing else of the call's.
	ctx context.Context //nolint:containedctx // kept because most events have the same logger
	log *zerolog.Logger

	waiting atomic.Int64 // events that were pushed and not yet offered to the sink

	mu      sync.Mutex
	queue   []item
	spare   []item // an empty queue, to be used again
	serving bool
}

func (l *line) push(it item) {
	if it.flush == nil && l.waiting.Add(1) > maxBacklog {
		l.waiting.Add(-1)
		l.settle(&it, errBacklog)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, it)
	if !l.serving {
		l.serving = true
		go l.serve()
	}
}

func (l *line) serve() {
	const most = 64 // items that an empty queue has room for; else a long one would be kept for ever
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.mu.Unlock()
			runtime.Gosched() // most calls have another event soon
			l.mu.Lock()
		}
		batch := l.queue
		if len(batch) == 0 {
			l.serving = false
			l.mu.Unlock()
			return
		}
		l.queue, l.spare = l.spare, nil
		l.mu.Unlock()
		for i := range batch {
			l.write(&batch[i])
		}
		if clear(batch); cap(batch) <= most {
			l.mu.Lock()
			l.spare = batch[:0]
			l.mu.Unlock()
		}
	}
}

// write offers one item to the sink. It goes by pointers because the stack it is
// on is a small one, and an event is not.
func (l *line) write(it *item) {
	if it.flush != nil {
		it.done <- sound(func() error { return l.sink.(Flusher).Flush(it.flush) })
		return
	}
	if it.log != l.log {
		l.log, l.ctx = it.log, it.log.WithContext(context.Background())
	}
	if late, ok := l.sink.(LateSink); ok {
		l.writeLate(l.ctx, late, it)
	} else {
		l.settle(it, sound(func() error { return l.sink.Write(l.ctx, it.ev) }))
	}
	l.waiting.Add(-1)
}

func (l *line) writeLate(ctx context.Context, late LateSink, it *item) {
	var once sync.Once
	kept := *it // done may be called when the queue is used for others
	done := func(err error) { once.Do(func() { l.settle(&kept, err) }) }
	if err := sound(func() error { late.WriteLate(ctx, it.ev, done); return nil }); err != nil {
		done(err)
	}
}

// sound runs f and turns a panic into an error.
func sound(f func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errPanicked
		}
	}()
	return f()
}

// settle ends an event's way to the sink.
func (l *line) settle(it *item, err error) {
	if err != nil {
		l.report(it, err)
	}
	if it.done != nil {
		it.done <- err
	}
	it.scope.end(err, &it.ev)
}

func (l *line) report(it *item, err error) {
	if l.onError == nil {
		it.log.Error().Err(err).Str("type", string(it.ev.Type)).Str("execution_id", it.ev.ExecutionID).Msg("An audit sink did not take an event")
		return
	}
	if sound(func() error { l.onError(err, it.ev); return nil }) != nil {
		it.log.Error().Msg("OnSinkError panicked")
	}
}
