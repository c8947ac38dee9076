package demo

import (
	"context"
	"sync"
	"time"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

const (
	beatEvery = time.Second
	beatType  = "org.example.heartbeat"
)

// heartbeat keeps events flowing to the bot in a room of its own: after some
// seconds without any the homeserver delivers the next one seconds late. Events
// of its type mean nothing to anybody. A nil heartbeat has stopped.
type heartbeat struct {
	mu   sync.Mutex // held while sending, and while paused
	end  context.CancelFunc
	gone chan struct{}
}

// beatIn begins to send as p until stop.
func beatIn(ctx context.Context, p *person, room id.RoomID) *heartbeat {
	ctx, end := context.WithCancel(ctx)
	h := &heartbeat{end: end, gone: make(chan struct{})}
	kind := event.Type{Type: beatType, Class: event.MessageEventType}
	go func() {
		defer close(h.gone)
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				h.mu.Lock()
				_, _ = p.send(ctx, room, kind, map[string]any{}) // the next will do
				h.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	}()
	return h
}

// pause holds the beat until resume is called: an event that finds the bot down
// makes the homeserver wait before it tries again.
func (h *heartbeat) pause() (resume func()) {
	h.mu.Lock()
	return h.mu.Unlock
}

func (h *heartbeat) stop() {
	if h != nil {
		h.end()
		<-h.gone
	}
}
