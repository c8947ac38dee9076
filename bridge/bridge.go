// Package bridge is the only code that knows Matrix. It takes events in, decides
// whether they are for the bot, hands commands and decisions to the gate, and
// tells the rooms what came of it.
//
// An event is a row before the homeserver gets its 200 ([Intake]); from there
// every step is a row that is done only together with what it caused, so the
// process may die anywhere. Stages: intake, route (a room's events in order),
// work (a thread's commands and results in order, threads in parallel), control
// (decisions, which never wait for a busy thread), outbox (a room's messages in
// order, each under a transaction id made from its cause). Every stage bears a
// repeat.
//
// When the homeserver cannot be reached, what is to be said waits; decisions
// wait, too, because who may decide is asked of the room at that moment and
// "cannot tell" is not a no. When the database cannot be written, events are
// answered 5xx and come again. No authority is ever read back from an event.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/commands"
	"moothall/runtime/gate"
)

// Config is everything a Bridge needs. Fields are required unless they name a
// default.
type Config struct {
	Rows       queue.Rows
	Homeserver Homeserver
	Gate       *gate.Gate
	Commands   *commands.Set
	Bot        string // full Matrix ID
	Domain     string // the homeserver's name; only its users may speak to the bot
	Name       string // display name, for mentions by name; may be empty
	// Owner names this process in leases. Default: made at random.
	Owner string
	Keys  content.KeySet
	// SeedYes and SeedNo are the reactions put on a card. Default ✅ and ❌.
	SeedYes, SeedNo string
	// MinPower is what it takes to decide, told on the card.
	MinPower int64
	// EventAge: messages older than this when they arrive are not acted on.
	// Default 1 h.
	EventAge time.Duration
	// LeaseTTL is how long a lane stays with a process that no longer renews it.
	// Default 30 s.
	LeaseTTL time.Duration
	// Threads, Controls, Routes and Senders are how many lanes of a class are
	// handled at once. Defaults 16, 8, 4, 4.
	Threads, Controls, Routes, Senders int
	Now                                func() time.Time // default time.Now
}

// Bridge runs the stages. Make it with [New], start it with [Bridge.Run].
type Bridge struct {
	cfg   Config
	wake  map[queue.Class]chan struct{}
	rooms *roomCache
}

// New checks the configuration.
func New(cfg Config) (*Bridge, error) {
	if cfg.Rows == nil || cfg.Homeserver == nil || cfg.Gate == nil || cfg.Commands == nil || cfg.Owner == "" {
		return nil, errors.New("bridge: rows, homeserver, gate, commands and owner are required")
	}
	if !strings.HasPrefix(cfg.Bot, "@") || !strings.HasSuffix(cfg.Bot, ":"+cfg.Domain) {
		return nil, fmt.Errorf("bridge: %q is no user of %q", cfg.Bot, cfg.Domain)
	}
	def(&cfg.SeedYes, "✅")
	def(&cfg.SeedNo, "❌")
	def(&cfg.EventAge, time.Hour)
	def(&cfg.LeaseTTL, 30*time.Second)
	def(&cfg.Threads, 16)
	def(&cfg.Controls, 8)
	def(&cfg.Routes, 4)
	def(&cfg.Senders, 4)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	b := &Bridge{cfg: cfg, wake: make(map[queue.Class]chan struct{}), rooms: newRoomCache()}
	for _, c := range []queue.Class{queue.ClassRoom, queue.ClassThread, queue.ClassControl, queue.ClassOutbox} {
		b.wake[c] = make(chan struct{}, 1)
	}
	return b, nil
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Wake tells the bridge that a lane of class c became due. It never blocks.
func (b *Bridge) Wake(c queue.Class) {
	select {
	case b.wake[c] <- struct{}{}:
	default:
	}
}

// Run serves all stages until ctx ends, then waits up to drain for the rows
// being handled; what is still running then is cut short.
func (b *Bridge) Run(ctx context.Context, drain time.Duration) {
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var wg sync.WaitGroup
	for _, st := range []stage{
		{queue.ClassRoom, b.cfg.Routes, b.routeNext},
		{queue.ClassThread, b.cfg.Threads, b.workNext},
		{queue.ClassControl, b.cfg.Controls, b.workNext},
		{queue.ClassOutbox, b.cfg.Senders, b.sendNext},
	} {
		wg.Go(func() { b.serve(ctx, work, st) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	<-ctx.Done()
	t := time.NewTimer(drain)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		zerolog.Ctx(ctx).Warn().Msg("Stopping with work unfinished; it is taken up at the next start")
		cut()
		<-done
	}
}

func (b *Bridge) now() time.Time { return b.cfg.Now() }
