package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

// sink keeps what it is given; f, if set, has a say before.
type sink struct {
	mu  sync.Mutex
	evs []gate.Event
	f   func(ev gate.Event) error
}

func (s *sink) Write(_ context.Context, ev gate.Event) error {
	if s.f != nil {
		if err := s.f(ev); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evs = append(s.evs, ev)
	return nil
}

func (s *sink) types() []gate.EventType {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []gate.EventType{}
	for _, ev := range s.evs {
		out = append(out, ev.Type)
	}
	return out
}

// failures collects what OnSinkError is told.
type failures struct {
	mu  sync.Mutex
	evs []string
}

func (f *failures) add(err error, ev gate.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.evs = append(f.evs, fmt.Sprintf("%s: %v", ev.Type, err))
}

func (f *failures) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.evs...)
}

func (w *world) drain() error { return w.Drain(context.Background()) }

func mustDrain(t *testing.T, w *world) {
	t.Helper()
	if err := w.drain(); err != nil {
		t.Fatalf("drain: %v", err)
	}
}

var threeSteps = []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventCompleted}

func TestR034SinksSeeWhatTheLedgerKeeps(t *testing.T) {
	s := &sink{}
	w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{s}}}, kit{meta: gated})
	id := w.approved()
	w.resume(id, gate.ResumeOptions{})
	_, _ = w.vote(id, carol, true) // too late: a refused decision
	c := call("bad")
	c.Input = json.RawMessage(`{"who":1}`)
	w.invoke(c)
	if _, err := w.Cancel(t.Context(), w.invoke(call("again")).ApprovalID, user(alice), ""); err != nil {
		t.Fatal(err)
	}
	mustDrain(t, w)
	equal(t, "events", s.types(), w.types(gate.EventFilter{}))
	equal(t, "the decision's actor", s.evs[2].Actor, user(bob)) // R185
	equal(t, "the decision", s.evs[2].Type, gate.EventApproved)
}

func TestR181ASinkThatFailsTouchesNothing(t *testing.T) {
	for name, f := range map[string]func(gate.Event) error{
		"an error": func(gate.Event) error { return errFault },
		"a panic":  func(gate.Event) error { panic("hunter2") },
	} {
		t.Run(name, func(t *testing.T) {
			good, told := &sink{}, &failures{}
			w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{&sink{f: f}, good}, OnSinkError: told.add}}, kit{})
			wants(t, w.invoke(call("k")), completed, "")
			err := w.drain()
			if err == nil || errors.Is(err, gate.ErrUndelivered) || strings.Contains(err.Error(), "hunter2") {
				t.Fatalf("drain: %v; want the failures", err)
			}
			equal(t, "told", len(told.list()), 3)
			equal(t, "lines", len(strings.Split(err.Error(), "\n")), 3)
			equal(t, "the other sink", good.types(), threeSteps)
			mustDrain(t, w) // a failure is told once
		})
	}
}

func TestR181OnSinkErrorMayPanic(t *testing.T) {
	w := one(t, gate.Config{Audit: gate.Audit{
		Sinks: []gate.Sink{&sink{f: func(gate.Event) error { return errFault }}}, OnSinkError: func(error, gate.Event) { panic("x") },
	}}, kit{})
	wants(t, w.invoke(call("k")), completed, "")
	if w.drain() == nil {
		t.Fatal("nothing failed")
	}
}

// A sink that hangs holds up neither the call nor another sink, and a drain says
// what is left.
func TestDrainNeverReportsSuccessOnTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		good := &sink{}
		w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{&sink{f: func(gate.Event) error { <-release; return nil }}, good}}}, kit{})
		wants(t, w.invoke(call("k")), completed, "")
		begun := time.Now()
		err := w.drain()
		equal(t, "took", time.Since(begun), 5*time.Second)
		if !errors.Is(err, gate.ErrUndelivered) || !strings.Contains(err.Error(), "3 events and 0 running handlers") {
			t.Fatalf("drain: %v", err)
		}
		equal(t, "the other sink", good.types(), threeSteps)
		close(release)
		mustDrain(t, w)
	})
}

func TestDrainWaitsForALateHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sink{}
		w := one(t, gate.Config{Now: time.Now, Timeout: time.Second, Audit: gate.Audit{Sinks: []gate.Sink{gate.NewBatch(s, gate.BatchConfig{})}}},
			kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
				time.Sleep(4 * time.Second)
				return nil, capability.Failed("Broken.", false)
			}})
		other := w.Scope()
		wants(t, w.invoke(call("k")), cancelled, capability.CodeTimeout)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := w.Drain(ctx); !errors.Is(err, gate.ErrUndelivered) || !strings.Contains(err.Error(), "0 events and 1 running handlers") {
			t.Fatalf("drain: %v", err)
		}
		if err := other.Drain(t.Context()); err != nil { // another scope has nothing to wait for
			t.Fatal(err)
		}
		mustDrain(t, w)
		equal(t, "events", s.types(), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventCancelled, gate.EventFailed})
		equal(t, "late", s.evs[3].Data, map[string]any{"late": true, "attempt": 1, "code": capability.CodeExecutionFailed})
	})
}

func TestScopesShareWhatTheyRunOn(t *testing.T) {
	s := &sink{f: func(gate.Event) error { return errFault }}
	w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{s}, OnSinkError: func(error, gate.Event) {}}}, kit{})
	view := w.Scope()
	if view.Governance() != w.Governance() {
		t.Fatal("a scope has another governance")
	}
	if _, err := view.Invoke(t.Context(), call("k")); err != nil {
		t.Fatal(err)
	}
	mustDrain(t, w)
	if view.Drain(t.Context()) == nil {
		t.Fatal("a scope lost its failures")
	}
	wants(t, w.invoke(call("k")), completed, "") // the same journal
	equal(t, "runs", w.runs(), 1)
}

func TestR183StrictStartIsOnRecordBeforeTheHandler(t *testing.T) {
	s := &sink{}
	var seen []gate.EventType
	w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{gate.NewBatch(s, gate.BatchConfig{Every: time.Hour})}, Strict: true}},
		kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
			seen = s.types()
			return json.RawMessage(`1`), nil
		}})
	wants(t, w.invoke(call("k")), completed, "")
	equal(t, "while it ran", seen, threeSteps[:2])
	mustDrain(t, w)
	equal(t, "in the end", s.types(), threeSteps)
}

// RZ2: without a record nothing runs, and the approval is not used up.
func TestRZ2NoRecordNoExecution(t *testing.T) {
	var broken atomic.Bool
	first, second := &sink{}, &sink{}
	second.f = func(ev gate.Event) error {
		if broken.Load() && ev.Type == gate.EventStarted {
			return errFault
		}
		return nil
	}
	told := &failures{}
	w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{second, first}, Strict: true, OnSinkError: told.add}}, kit{meta: gated})
	id := w.approved()
	broken.Store(true)
	res := w.resume(id, gate.ResumeOptions{})
	wants(t, res, failed, capability.CodeAuditUnavailable)
	equal(t, "retryable", res.Error.Retryable, true)
	equal(t, "face", res.Error.Face(), capability.Face{Code: capability.CodeInternal, Message: "The operation failed."})
	equal(t, "effect", res.Effect, "")
	equal(t, "runs", w.runs(), 0)
	equal(t, "approval", w.approval(id).State, gate.ApprovalApproved)
	equal(t, "told", told.list(), []string{"capability.started: fault"})
	_ = w.drain()
	broken.Store(false)
	wants(t, w.resume(id, gate.ResumeOptions{}), completed, "")
	wants(t, w.resume(id, gate.ResumeOptions{}), completed, "") // the recorded envelope
	wants(t, w.resume(id, gate.ResumeOptions{Key: "another"}), failed, capability.CodeApprovalConsumed)
	equal(t, "runs", w.runs(), 1)
	mustDrain(t, w)
	// Q7: the sink after the broken one saw the start all the same.
	equal(t, "starts", strings.Count(fmt.Sprint(first.types()), "capability.started"), 2)
}

func TestRZ2AStrictSinkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := one(t, gate.Config{Now: time.Now, Audit: gate.Audit{Strict: true, Sinks: []gate.Sink{&sink{f: func(gate.Event) error { <-release; return nil }}}}}, kit{})
		wants(t, w.invoke(call("k")), failed, capability.CodeAuditUnavailable)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := w.Invoke(ctx, call("gone")); err == nil {
			t.Fatal("a caller that went away got an envelope")
		}
		equal(t, "runs", w.runs(), 0)
		close(release)
		mustDrain(t, w)
	})
}

func TestRZ6StrictWithoutASink(t *testing.T) {
	r, err := capability.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range map[string]gate.Audit{"none": {Strict: true}, "nil": {Sinks: []gate.Sink{nil}}} {
		if _, err := gate.New(gate.Config{
			Registry: r, Ledger: &faulty{}, Electors: &electors{}, People: &people{}, Contexts: &contexts{}, Audit: a,
		}); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func TestR172R173TheDiscoveredEvent(t *testing.T) {
	s := &sink{}
	build := func(verbose bool, p policy.Decision, ids ...string) *world {
		w := newWorld(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{s}, Verbose: verbose}, Policies: []policy.Policy{says("p", p, policy.PhaseDiscovery)}})
		var caps []*capability.Capability
		for _, id := range ids {
			caps = append(caps, w.tool(kit{id: id}))
		}
		w.rebuild(caps...)
		return w
	}
	digest := func(w *world, sc gate.Scope) string {
		t.Helper()
		listed(t, w, sc)
		mustDrain(t, w)
		s.mu.Lock()
		defer s.mu.Unlock()
		ev := s.evs[len(s.evs)-1]
		equal(t, "type", ev.Type, gate.EventDiscovered)
		equal(t, "actor", ev.Actor, user(alice))
		d, _ := ev.Data["digest"].(string)
		delete(ev.Data, "digest")
		s.evs = append(s.evs[:len(s.evs)-1], ev)
		return d
	}
	w := build(false, allow, "a", "b")
	ab := digest(w, gate.Scope{})
	equal(t, "the digest of a, b", ab, "0473ef2dc0d324ab659d3580c1134e9d812035905c4781fdd6d529b0c6860e13")
	equal(t, "data", s.evs[0].Data, map[string]any{"count": 2, "surface": "command"})
	equal(t, "R173 another order", digest(build(false, allow, "b", "a"), gate.Scope{}), ab)
	if digest(w, gate.Scope{IDs: []string{"a"}}) == ab {
		t.Error("another scope has the same digest")
	}
	if digest(build(false, hide, "a", "b"), gate.Scope{}) == ab {
		t.Error("another listing has the same digest")
	}
	digest(build(true, allow, "b", "a"), gate.Scope{})
	equal(t, "verbose", s.evs[len(s.evs)-1].Data, map[string]any{"count": 2, "surface": "command", "ids": []string{"a", "b"}})
}

func TestAListingThatCannotBeRecordedIsGivenAllTheSame(t *testing.T) {
	w := one(t, gate.Config{}, kit{})
	w.ledger.fail["record"] = 1
	equal(t, "listed", listed(t, w, gate.Scope{}), []string{"hall.act"})
}

func TestAFloodedSinkLosesEventsAndSaysSo(t *testing.T) {
	release := make(chan struct{})
	told := &failures{}
	w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{&sink{f: func(gate.Event) error { <-release; return nil }}}, OnSinkError: told.add}}, kit{})
	for range 10_003 {
		listed(t, w, gate.Scope{IDs: []string{}})
	}
	close(release)
	err := w.drain()
	if err == nil || len(told.list()) != 3 {
		t.Fatalf("drain: %v; told %d", err, len(told.list()))
	}
}

func TestJSONLines(t *testing.T) {
	var buf bytes.Buffer
	w := one(t, gate.Config{Audit: gate.Audit{Sinks: []gate.Sink{gate.JSONLines(&buf)}}}, kit{})
	w.invoke(call("k"))
	mustDrain(t, w)
	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	equal(t, "lines", len(lines), 3)
	var ev gate.Event
	if err := json.Unmarshal([]byte(lines[1]), &ev); err != nil {
		t.Fatal(err)
	}
	equal(t, "type", ev.Type, gate.EventStarted)
	equal(t, "correlation", ev.CorrelationID, "$ask")
	if strings.Contains(buf.String(), "carol") {
		t.Error("arguments are in the audit")
	}
}

// brokenWriter takes half a line, once.
type brokenWriter struct {
	bytes.Buffer
	broken bool
}

func (b *brokenWriter) Write(p []byte) (int, error) {
	if b.broken {
		b.broken = false
		n, _ := b.Buffer.Write(p[:len(p)/2])
		return n, errFault
	}
	return b.Buffer.Write(p)
}

func TestJSONLinesAfterATornLine(t *testing.T) {
	b := &brokenWriter{broken: true}
	s := gate.JSONLines(b)
	if s.Write(t.Context(), gate.Event{Type: gate.EventStarted}) == nil {
		t.Fatal("a torn line passed for written")
	}
	if err := s.Write(t.Context(), gate.Event{Type: gate.EventCompleted}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(b.String(), "\n")
	var ev gate.Event
	if err := json.Unmarshal([]byte(lines[1]), &ev); err != nil || ev.Type != gate.EventCompleted {
		t.Fatalf("%q: %v", lines, err)
	}
}
