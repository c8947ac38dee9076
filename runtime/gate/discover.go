package gate

import (
	"context"
	"slices"
	"sync"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// discovery asks the discovery policies of many tools, some tools at a time. A
// worker asks about one tool after the other in its own goroutine; one that is
// held by a policy beyond its time is left behind and another takes its place, so
// a tool costs neither a goroutine nor a timer.
type discovery struct {
	g       *Gate
	tools   []*tool
	surface capability.Surface
	actor   capability.Actor

	mu      sync.Mutex
	stances []policy.Stance
	asked   map[int]time.Time // the tools in hand, and until when
	next    int
	left    int
	over    chan struct{} // closed when nothing is left
}

// discover gives a stance for each tool. When ctx ends, what is missing is denied.
func (g *Gate) discover(ctx context.Context, tools []*tool, s capability.Surface, actor capability.Actor) []policy.Stance {
	d := &discovery{
		g: g, tools: tools, surface: s, actor: actor, stances: make([]policy.Stance, len(tools)),
		asked: make(map[int]time.Time), over: make(chan struct{}),
	}
	for i, t := range tools {
		d.stances[i] = policy.StanceAllow
		if t.has(policy.PhaseDiscovery) {
			d.stances[i] = policy.StanceDeny // until it is told otherwise
			d.left++
		}
	}
	if d.left == 0 {
		return d.stances
	}
	for range min(g.cfg.PolicyConcurrency, d.left) {
		go d.work(ctx)
	}
	d.wait(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.next = len(tools)
	return slices.Clone(d.stances)
}

// wait returns when nothing is left or ctx ends.
func (d *discovery) wait(ctx context.Context) {
	t := time.NewTimer(d.g.cfg.PolicyTimeout)
	defer t.Stop()
	for {
		select {
		case <-d.over:
			return
		case <-ctx.Done():
			return
		case <-t.C:
			t.Reset(d.replace(ctx))
		}
	}
}

// replace leaves behind the workers whose time is over and says when to look
// again.
func (d *discovery) replace(ctx context.Context) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, again := time.Now(), d.g.cfg.PolicyTimeout
	for i, until := range d.asked {
		if until.After(now) {
			again = min(again, until.Sub(now))
			continue
		}
		d.done(i, policy.StanceDeny)
		go d.work(ctx)
	}
	return again
}

// done takes a tool out of hand. The lock is held.
func (d *discovery) done(i int, s policy.Stance) {
	d.stances[i] = s
	delete(d.asked, i)
	if d.left--; d.left == 0 {
		close(d.over)
	}
}

// take gives the next tool to ask about.
func (d *discovery) take() (int, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ; d.next < len(d.tools); d.next++ {
		if d.tools[d.next].has(policy.PhaseDiscovery) {
			d.asked[d.next] = time.Now().Add(d.g.cfg.PolicyTimeout)
			d.next++
			return d.next - 1, true
		}
	}
	return 0, false
}

func (d *discovery) work(ctx context.Context) {
	for {
		i, ok := d.take()
		if !ok || !d.ask(ctx, i) {
			return
		}
	}
}

// ask asks about one tool and reports whether the worker is still wanted.
func (d *discovery) ask(ctx context.Context, i int) bool {
	t := d.tools[i]
	ctx, stop := withDeadline(ctx, d.g.cfg.PolicyTimeout, nil)
	defer stop()
	o := policy.EvaluateHere(ctx, t.policies, policy.Request{
		Phase: policy.PhaseDiscovery, CapabilityID: t.ID, Meta: shown(t.Meta), Surface: d.surface, Actor: d.actor,
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, mine := d.asked[i]; !mine {
		return false
	}
	d.done(i, o.Stance)
	return true
}
