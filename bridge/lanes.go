package bridge

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge/queue"
)

// How lanes are polled and put off.
const (
	pollEvery   = 500 * time.Millisecond // in case a wake-up was lost, and for due times
	backoffBase = 250 * time.Millisecond
	backoffMax  = 30 * time.Second
)

// stage is one class of lanes and how its next row is handled.
type stage struct {
	class queue.Class
	at    int // lanes at once
	// next handles the lane's oldest row. more is false when there is none that
	// is due. An error means that the row was not ended.
	next func(ctx context.Context) (more bool, err error)
}

// serve claims lanes one after the other and handles each in a goroutine of its
// own, until ctx ends; then it waits for those. work is what rows are handled
// under: it outlives ctx while the bridge drains.
func (b *Bridge) serve(ctx, work context.Context, st stage) {
	log := zerolog.Ctx(ctx).With().Str("stage", string(st.class)).Logger()
	slots := make(chan struct{}, st.at)
	defer func() {
		for range st.at {
			slots <- struct{}{}
		}
	}()
	failures := 0
	for ctx.Err() == nil {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		l, ok, err := b.claim(ctx, st.class)
		if err == nil && ok {
			failures = 0
			go func() {
				defer func() { <-slots }()
				b.handle(ctx, log.WithContext(work), st, l)
			}()
			continue
		}
		<-slots
		if err != nil && ctx.Err() == nil {
			failures++
			log.Error().Err(err).Msg("Could not claim a lane")
			sleep(ctx, backoff(failures))
			continue
		}
		b.idle(ctx, st.class)
	}
}

// claim takes a lane if one is due. It looks before it claims: looking does not
// need the one writer of the database, which work in progress waits for.
func (b *Bridge) claim(ctx context.Context, c queue.Class) (queue.Lease, bool, error) {
	due, ok, err := b.cfg.Rows.NextDue(ctx, c)
	if err != nil || !ok || due.After(b.now()) {
		return queue.Lease{}, false, err
	}
	return b.cfg.Rows.Claim(ctx, c, b.cfg.Owner, b.now(), b.cfg.LeaseTTL)
}

// idle waits for a wake-up, the next due time, or the poll interval.
func (b *Bridge) idle(ctx context.Context, c queue.Class) {
	wait := pollEvery
	if due, ok, err := b.cfg.Rows.NextDue(ctx, c); err == nil && ok {
		wait = min(max(due.Sub(b.now()), time.Millisecond), pollEvery)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.wake[c]:
	case <-ctx.Done():
	}
}

// handle works a lane off under its lease, which it renews meanwhile. When ctx
// (the bridge) ends, it stops after the row at hand.
func (b *Bridge) handle(ctx, work context.Context, st stage, l queue.Lease) {
	work, stop := context.WithCancelCause(work)
	defer stop(nil)
	work = queue.WithLease(work, l)
	go b.keep(work, stop, l)
	log := zerolog.Ctx(work)
	for failures := 0; ctx.Err() == nil && work.Err() == nil; {
		more, err := st.next(work)
		switch {
		case errors.Is(err, queue.ErrFenced):
			log.Warn().Msg("Lost a lane, leaving its rows to whoever has it")
			return
		case err != nil:
			failures++
			log.Error().Err(err).Int("failures", failures).Msg("A row could not be ended, trying again")
			sleep(ctx, backoff(failures))
		case !more:
			b.release(work, l)
			return
		default:
			failures = 0
		}
	}
	b.release(work, l)
}

func (b *Bridge) release(ctx context.Context, l queue.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for failures := 1; ctx.Err() == nil; failures++ {
		err := b.cfg.Rows.Release(ctx, l)
		if err == nil {
			break
		}
		// Until it runs out by itself nobody serves the lane.
		zerolog.Ctx(ctx).Error().Err(err).Int("failures", failures).Msg("Could not give a lane back")
		sleep(ctx, backoff(failures))
	}
	b.Wake(l.Class)
}

// keep renews a lease until ctx ends, and ends ctx when it is lost.
func (b *Bridge) keep(ctx context.Context, stop context.CancelCauseFunc, l queue.Lease) {
	t := time.NewTicker(b.cfg.LeaseTTL / 3)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		_, err := b.cfg.Rows.Renew(ctx, l, b.now(), b.cfg.LeaseTTL)
		if errors.Is(err, queue.ErrFenced) {
			stop(queue.ErrFenced)
			return
		}
		if err != nil && ctx.Err() == nil {
			zerolog.Ctx(ctx).Error().Err(err).Msg("Could not renew a lease")
		}
	}
}

// backoff is how long to wait after the n-th failure in a row.
func backoff(n int) time.Duration {
	d := backoffBase
	for i := 1; i < n && d < backoffMax; i++ {
		d *= 2
	}
	return min(d, backoffMax)
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
