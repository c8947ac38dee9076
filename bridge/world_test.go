package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/commands"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/plugins/clock"
	"moothall/runtime/plugins/room"
	"moothall/runtime/policy"
	"moothall/store"
)

// world is one Moothall on a database file of its own, wired as cmd/moothall
// wires it, and the homeserver it serves. It lives in a synctest bubble.
type world struct {
	t    *testing.T
	dir  string
	hs   *fakeHS
	demo []string // which of demoTools it has

	st   *store.Store
	b    *Bridge
	g    *gate.Gate
	in   *Intake
	run  chan struct{} // closed when the bridge has ended
	halt context.CancelFunc

	mu     sync.Mutex
	live   http.Handler // nil while down
	faults []string     // steps of the store that fail; "*" is every one

	ran     atomic.Int64  // runs of demo.bump and demo.count
	holding chan struct{} // demo.hold says that it runs
	release chan struct{} // and waits for this
}

const town = "!town:" + domain

// newWorld makes a world with a running Moothall; it is stopped and closed when
// the returned function is called, which must be inside the bubble.
func newWorld(t *testing.T, dir string, demo ...string) (*world, func()) {
	t.Helper()
	w := &world{
		t: t, dir: dir, hs: newFakeHS(t), demo: demo,
		holding: make(chan struct{}, 1), release: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	pumped := make(chan struct{})
	go func() {
		defer close(pumped)
		w.hs.deliver(ctx, w.handler)
	}()
	w.start()
	return w, func() {
		cancel()
		<-pumped
		if w.st != nil {
			w.stop()
		}
	}
}

func (w *world) handler() http.Handler {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live
}

func (w *world) fault(step string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.faults, step) || slices.Contains(w.faults, "*") {
		return errors.New("the disk is full")
	}
	return nil
}

// failing makes the store's steps fail; none heals it.
func (w *world) failing(steps ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = steps
}

func (w *world) start() {
	w.t.Helper()
	ctx := zerolog.Nop().WithContext(w.t.Context())
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	var err error
	var b atomic.Pointer[Bridge]
	w.st, err = store.Open(ctx, store.Config{
		Path: filepath.Join(w.dir, "moothall.db"), Fault: w.fault, Now: w.hs.now,
		Wake: func(c queue.Class) {
			if b := b.Load(); b != nil {
				b.Wake(c)
			}
		},
	})
	must(err)
	must(w.st.Rows().ReleaseAll(ctx))
	tools := append(clock.Tools(w.hs.now), room.Tools(roomServer{Acts{Homeserver: w.hs, Refused: room.ErrRefused}}, botID)...)
	for _, d := range w.demoTools() {
		if slices.Contains(w.demo, d.ID) {
			tools = append(tools, d)
		}
	}
	registry, err := capability.NewRegistry(tools...)
	must(err)
	w.g, err = gate.New(gate.Config{
		Registry: registry, Ledger: w.st.Ledger(), People: w.st, Contexts: Contexts{},
		Electors: Electors{Homeserver: w.hs, Bot: botID, MinPower: 50, Withdraw: func(ctx context.Context, id, why string) error {
			_, err := w.g.Cancel(ctx, id, capability.Actor{}, why)
			return err
		}},
		Policies: []policy.Policy{Showable{}},
		Now:      w.hs.now,
	})
	must(err)
	keys, err := content.NewKeySet(content.DefaultApprove(), content.DefaultReject())
	must(err)
	w.b, err = New(Config{
		Rows: w.st.Rows(), Homeserver: w.hs, Gate: w.g, Commands: commands.New(w.g, "!"),
		Bot: botID, Domain: domain, Name: "Moothall", Owner: "test", Keys: keys, MinPower: 50, Now: w.hs.now,
	})
	must(err)
	b.Store(w.b)
	w.in, err = NewIntake(IntakeConfig{Inbox: w.st.Rows(), HSToken: hsToken, Bot: botID, Now: w.hs.now})
	must(err)
	run, halt := context.WithCancel(ctx)
	w.run, w.halt = make(chan struct{}), halt
	go func(b *Bridge, done chan struct{}) {
		defer close(done)
		b.Run(run, 10*time.Second)
	}(w.b, w.run)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live = w.in.Handler()
}

// stop ends Moothall as SIGTERM does.
func (w *world) stop() {
	w.t.Helper()
	w.mu.Lock()
	w.live = nil
	w.mu.Unlock()
	w.halt()
	<-w.run
	if err := w.st.Close(); err != nil {
		w.t.Error(err)
	}
	w.st = nil
}

// kill ends Moothall as SIGKILL does: nothing is written any more.
func (w *world) kill() {
	w.t.Helper()
	w.failing("*")
	w.stop()
	w.failing()
}

// settle lets everything happen that can happen now and in the next d.
func (w *world) settle(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

// later lets d pass. Most of it is skipped: nothing that runs may need it.
func (w *world) later(d time.Duration) {
	const lived = 45 * time.Second
	if d > lived {
		w.hs.ahead.Add(int64(d - lived))
		d = lived
	}
	w.settle(d)
}

// say puts a person's message into the room and returns its event id.
func (w *world) say(who, text string) string {
	return w.hs.Put(town, fakeEvent{Sender: user(who), Type: typeMessage, Content: map[string]any{"msgtype": "m.text", "body": text}})
}

func reactionTo(target, key string) map[string]any {
	return map[string]any{"m.relates_to": map[string]any{"rel_type": "m.annotation", "event_id": target, "key": key}}
}

func (w *world) react(who, target, key string) string {
	return w.hs.Put(town, fakeEvent{Sender: user(who), Type: typeReaction, Content: reactionTo(target, key)})
}

// cards are the event ids of the cards in a room, oldest first.
func (w *world) cards() []string {
	var out []string
	w.hs.with(func() {
		for _, e := range w.hs.sent {
			if e.Content[keyCard] != nil && e.Content["m.new_content"] == nil {
				out = append(out, e.ID)
			}
		}
	})
	return out
}

// bodies are the plain texts of what the bot said, edits left out.
func (w *world) bodies() []string {
	var out []string
	w.hs.with(func() {
		for _, e := range w.hs.sent {
			if body, ok := e.Content["body"].(string); ok && e.Type == typeMessage && e.Content["m.new_content"] == nil {
				out = append(out, body)
			}
		}
	})
	return out
}

// said counts the messages that contain part.
func (w *world) said(part string) int {
	n := 0
	for _, b := range w.bodies() {
		if strings.Contains(b, part) {
			n++
		}
	}
	return n
}

// events counts audit rows of a type.
func (w *world) events(types ...gate.EventType) int {
	w.t.Helper()
	all, err := w.st.Ledger().Events(w.t.Context(), gate.EventFilter{Types: types, Limit: 10_000})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(all)
}

func (w *world) approvals() []gate.Approval {
	w.t.Helper()
	all, err := w.st.Ledger().Approvals(w.t.Context(), gate.ApprovalFilter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

func (w *world) executions() []gate.Execution {
	w.t.Helper()
	all, err := w.st.Ledger().Executions(w.t.Context(), gate.ExecutionFilter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// roomServer is what cmd/moothall puts between the room's tools and the bridge.
type roomServer struct{ Acts }

func (r roomServer) Powers(ctx context.Context, roomID string, act room.Act, users ...string) (room.Powers, error) {
	what := map[room.Act]string{room.ActTopic: typeTopic, room.ActInvite: "invite", room.ActKick: "kick"}[act]
	needed, of, member, err := r.Levels(ctx, roomID, what, users...)
	return room.Powers{Needed: needed, Of: of, Member: member}, err
}

type saidOut struct {
	Say string `json:"say"`
}

// demoTools are tools whose effect is a counter, and tools that misbehave.
func (w *world) demoTools() []*capability.Capability {
	here := []capability.Surface{capability.SurfaceCommand}
	ask := capability.Approval{Required: true}
	bump := func(context.Context, *capability.Context, struct{}) (saidOut, error) {
		return saidOut{fmt.Sprintf("Run number %d.", w.ran.Add(1))}, nil
	}
	mail := json.RawMessage(`{"type":"object","additionalProperties":false,"required":["to","text"],"properties":{
		"to":{"type":"string","description":"who gets it"},"text":{"type":"string"},
		"copies":{"type":"integer","minimum":1,"maximum":9},"urgent":{"type":"boolean"},
		"weight":{"type":"number"},"kind":{"enum":["letter","card"]},
		"tags":{"type":"array","items":{"type":"string"}}}}`)
	return []*capability.Capability{
		capability.Define("demo.bump", capability.Meta{
			Description: "Count one up, if somebody agrees.", Expose: here,
			SideEffect: capability.SideEffectWrite, Risk: capability.RiskHigh, Approval: ask,
		}, bump),
		capability.Define("demo.soon", capability.Meta{
			Description: "Count one up, if somebody agrees within a minute.", Expose: here,
			SideEffect: capability.SideEffectWrite, Risk: capability.RiskHigh,
			Approval: capability.Approval{Required: true, ExpiresIn: time.Minute},
		}, bump),
		capability.Define("demo.count", capability.Meta{
			Description: "Count one up.", Expose: here, SideEffect: capability.SideEffectWrite, Risk: capability.RiskLow,
		}, bump),
		capability.Define("demo.pair", capability.Meta{
			Description: "Count one up, if two agree.", Expose: here, SideEffect: capability.SideEffectWrite, Risk: capability.RiskHigh,
			Approval: capability.Approval{Required: true, Quorum: 2},
		}, bump),
		capability.Define("demo.hold", capability.Meta{
			Description: "Keep the thread busy.", Expose: here, SideEffect: capability.SideEffectNone, Risk: capability.RiskLow,
			Timeout: 48 * time.Hour,
		}, func(ctx context.Context, _ *capability.Context, in struct {
			Minutes int `json:"minutes"`
		},
		) (saidOut, error) {
			t := time.NewTimer(time.Duration(in.Minutes) * time.Minute)
			defer t.Stop()
			select {
			case <-t.C:
				return saidOut{"Held."}, nil
			case <-ctx.Done():
				return saidOut{}, ctx.Err()
			}
		}),
		capability.Define("demo.break", capability.Meta{
			Description: "Fail half way.", Expose: here, SideEffect: capability.SideEffectExternal, Risk: capability.RiskHigh, Approval: ask,
		}, func(context.Context, *capability.Context, struct{}) (saidOut, error) {
			w.ran.Add(1)
			return saidOut{}, errors.New("connection reset; password=hunter2")
		}),
		capability.FromSchema("demo.mail", capability.Meta{
			Description: "Write to somebody.", Expose: here, SideEffect: capability.SideEffectNone, Risk: capability.RiskLow,
		}, mail, nil, func(_ context.Context, _ *capability.Context, in json.RawMessage) (json.RawMessage, error) {
			return in, nil
		}),
	}
}
