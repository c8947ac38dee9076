package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"moothall/internal/homeserver"
)

const (
	// patience is how long something that must come may take: the homeserver
	// alone may hold an application service's event back for some seconds.
	patience = 20 * time.Second
	// requestTimeout bounds one request of a client.
	requestTimeout = 20 * time.Second
	timelineLimit  = 500
)

// match says whether an event is the one.
type match func(*event.Event) bool

// person is somebody with an ordinary client. Its timeline is what the
// homeserver's /sync told that client, in order, all rooms together. A person is
// safe for concurrent use.
type person struct {
	id       id.UserID
	password string
	client   *mautrix.Client
	hangUp   context.CancelFunc // ends the sync
	gone     chan struct{}      // closed when it has ended

	mu     sync.Mutex
	events []*event.Event
	ids    map[id.EventID]bool
	news   chan struct{} // closed when the timeline grows, then replaced
}

// newPerson registers name and logs them in.
func newPerson(ctx context.Context, hs *homeserver.Server, name string) (*person, error) {
	p := &person{
		id: id.NewUserID(name, domain), password: name + "-password",
		ids: map[id.EventID]bool{}, news: make(chan struct{}),
	}
	token, device, err := hs.Register(ctx, name, p.password, false)
	if err != nil {
		return nil, err
	}
	if p.client, err = mautrix.NewClient(hs.URL(), p.id, token); err != nil {
		return nil, fmt.Errorf("client of %s: %w", name, err)
	}
	p.client.DeviceID = id.DeviceID(device)
	p.client.Client.Timeout = 0 // requests have contexts, and a sync is long
	return p, nil
}

// listen keeps the timeline up to date until [person.leave]. fatal is told if
// that ends by itself.
func (p *person) listen(ctx context.Context, fatal func(error)) {
	syncer := mautrix.NewDefaultSyncer()
	syncer.FilterJSON = &mautrix.Filter{Room: &mautrix.RoomFilter{Timeline: &mautrix.FilterPart{Limit: timelineLimit}}}
	syncer.OnEvent(p.add)
	p.client.Syncer = syncer
	// The people stay when ctx ends, so that leave is their only end.
	ctx, p.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	p.gone = make(chan struct{})
	go func() {
		defer close(p.gone)
		if err := p.client.SyncWithContext(ctx); ctx.Err() == nil {
			fatal(fmt.Errorf("%s lost the homeserver: %w", p.id, err))
		}
	}()
}

// leave ends what listen began.
func (p *person) leave() {
	if p.hangUp != nil {
		p.hangUp()
		<-p.gone
	}
}

// add takes one event of a sync.
func (p *person) add(_ context.Context, ev *event.Event) {
	if ev.Mautrix.EventSource&event.SourceTimeline == 0 || ev.ID == "" {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ids[ev.ID] {
		return
	}
	p.ids[ev.ID] = true
	p.events = append(p.events, ev)
	close(p.news)
	p.news = make(chan struct{})
}

// timeline is everything seen so far after the event after (all, if that is
// empty), and a channel that is closed when there is more.
func (p *person) timeline(after id.EventID) ([]*event.Event, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from := 0
	if after != "" {
		from = 1 + slices.IndexFunc(p.events, func(ev *event.Event) bool { return ev.ID == after })
	}
	return slices.Clone(p.events[from:]), p.news
}

// all are the events seen so far that match.
func (p *person) all(is match) []*event.Event {
	events, _ := p.timeline("")
	return slices.DeleteFunc(events, func(ev *event.Event) bool { return !is(ev) })
}

// await waits for an event after another one; what names it in the error.
func (p *person) await(ctx context.Context, what string, after id.EventID, is match) (*event.Event, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited for %s", patience))
	defer cancel()
	for {
		events, more := p.timeline(after)
		if i := slices.IndexFunc(events, is); i >= 0 {
			return events[i], nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("%w\n  expected: %s\n  seen by %s since then: %s", context.Cause(ctx), what, p.id, summary(events))
		}
	}
}

// hold watches for d that nothing matches, and returns the first event that
// does, or nil.
func (p *person) hold(ctx context.Context, d time.Duration, after id.EventID, is match) (*event.Event, error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		events, more := p.timeline(after)
		if i := slices.IndexFunc(events, is); i >= 0 {
			return events[i], nil
		}
		select {
		case <-more:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// send sends one event.
func (p *person) send(ctx context.Context, room id.RoomID, kind event.Type, content any) (id.EventID, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := p.client.SendMessageEvent(ctx, room, kind, content)
	if err != nil {
		return "", fmt.Errorf("%s sends %s: %w", p.id, kind.Type, err)
	}
	return resp.EventID, nil
}

// summary names events for somebody who looks for a fault.
func summary(events []*event.Event) string {
	var out []string
	for _, ev := range events {
		if ev.Type.Type == beatType {
			continue
		}
		s := ev.Type.Type + " of " + ev.Sender.String()
		if c, ok := ev.Content.Parsed.(*event.MessageEventContent); ok {
			s += fmt.Sprintf(" %q", c.Body)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return "nothing"
	}
	return "\n  " + strings.Join(out, "\n  ")
}
