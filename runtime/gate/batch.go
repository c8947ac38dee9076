package gate

import (
	"context"
	"errors"
	"sync"
	"time"
)

// BatchConfig bounds what a [Batch] keeps back.
type BatchConfig struct {
	Size  int           // events; default 50
	Every time.Duration // after the first of them; default 250 ms
}

// BatchSink is a [Sink] that takes several events at once: all or none.
type BatchSink interface {
	WriteBatch(ctx context.Context, evs []Event) error
}

// Batch is a sink that gathers events for another, which is written to by one
// goroutine at a time, in order. A started event keeps nothing waiting: it goes
// out at once, behind what was gathered before it. When a write fails, each event
// in it failed. After [Batch.Close] events are written through. It is safe for
// concurrent use; a [Batch] that is dropped unclosed loses up to Size events.
type Batch struct {
	sink Sink
	cfg  BatchConfig

	mu     sync.Mutex // guards what follows
	buf    []waiting
	timer  *time.Timer
	closed bool

	writing sync.Mutex // held while the sink is written to
}

type waiting struct {
	ev   Event
	done func(error)
}

var (
	_ LateSink = (*Batch)(nil)
	_ Flusher  = (*Batch)(nil)
	_ Sink     = (*Batch)(nil)
)

// NewBatch wraps a sink. If it is a [BatchSink], it gets what was gathered in
// one call, else one by one.
func NewBatch(s Sink, cfg BatchConfig) *Batch {
	if cfg.Size <= 0 {
		cfg.Size = 50
	}
	if cfg.Every <= 0 {
		cfg.Every = 250 * time.Millisecond
	}
	return &Batch{sink: s, cfg: cfg}
}

// Write gives an event and waits until it is written, which may take as long as
// the batch is kept.
func (b *Batch) Write(ctx context.Context, ev Event) error {
	ch := make(chan error, 1)
	b.WriteLate(ctx, ev, func(err error) { ch <- err })
	select {
	case err := <-ch:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WriteLate gives an event; done is called when it is written.
func (b *Batch) WriteLate(ctx context.Context, ev Event, done func(error)) {
	b.mu.Lock()
	b.buf = append(b.buf, waiting{ev, done})
	now := b.closed || ev.Type == EventStarted || len(b.buf) >= b.cfg.Size
	if !now && b.timer == nil {
		b.timer = time.AfterFunc(b.cfg.Every, func() { _ = b.Flush(context.WithoutCancel(ctx)) })
	}
	b.mu.Unlock()
	if now {
		_ = b.Flush(ctx) // each event is told of its own failure
	}
}

// Flush writes what was gathered. Its failures are those of the events.
func (b *Batch) Flush(ctx context.Context) error {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	buf := b.buf
	b.buf = nil
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
	b.mu.Unlock()
	if len(buf) == 0 {
		return nil
	}
	many, ok := b.sink.(BatchSink)
	if !ok {
		var faults []error
		for _, w := range buf {
			err := sound(func() error { return b.sink.Write(ctx, w.ev) })
			faults = append(faults, err)
			w.done(err)
		}
		return errors.Join(faults...)
	}
	evs := make([]Event, len(buf))
	for i, w := range buf {
		evs[i] = w.ev
	}
	err := sound(func() error { return many.WriteBatch(ctx, evs) })
	for _, w := range buf {
		w.done(err)
	}
	return err
}

// Close flushes; what comes later is written through. The wrapped sink is left
// open.
func (b *Batch) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.Flush(ctx)
}
