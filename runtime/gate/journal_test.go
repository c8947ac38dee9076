package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

func TestSameKeyGivesTheRecordedEnvelope(t *testing.T) {
	refuse := func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
		return nil, capability.Refuse("Not here.")
	}
	for name, tt := range map[string]struct {
		k        kit
		policies []policy.Policy
		input    string
	}{
		"completed": {kit{}, nil, `{"who":"carol"}`},
		"failed":    {kit{run: refuse}, nil, `{"who":"carol"}`},
		"denied":    {kit{}, []policy.Policy{says("no", deny)}, `{"who":"carol"}`},
		"suspended": {kit{meta: gated}, nil, `{"who":"carol"}`},
		"malformed": {kit{}, nil, `{"who":`},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{Policies: tt.policies}, tt.k)
			c := call("k")
			c.Input = json.RawMessage(tt.input)
			first := w.invoke(c)
			events, runs := len(w.events(gate.EventFilter{})), w.runs()
			for _, in := range []string{tt.input, " " + tt.input} {
				if name == "malformed" {
					in = tt.input // it has no form, only bytes
				}
				c.Input = json.RawMessage(in)
				equal(t, "envelope", w.invoke(c), first)
			}
			equal(t, "events", len(w.events(gate.EventFilter{})), events)
			equal(t, "runs", w.runs(), runs)
		})
	}
}

func TestSameKeyForSomethingElseIsRefused(t *testing.T) {
	w := one(t, gate.Config{}, kit{})
	w.invoke(call("k"))
	for name, change := range map[string]func(*gate.Call){
		"other input":      func(c *gate.Call) { c.Input = json.RawMessage(`{"who":"dave"}`) },
		"bad input":        func(c *gate.Call) { c.Input = json.RawMessage(`{`) },
		"other capability": func(c *gate.Call) { c.CapabilityID = "hall.other" },
	} {
		t.Run(name, func(t *testing.T) {
			c := call("k")
			change(&c)
			if _, err := w.Invoke(t.Context(), c); !errors.Is(err, gate.ErrClaim) {
				t.Errorf("error %v", err)
			}
		})
	}
	equal(t, "runs", w.runs(), 1)
}

// crash stops the process of w between the start and the end of a call. A write
// that is lost stands for it: the journal holds what a dead process leaves.
func crash(t *testing.T, w *world, c gate.Call) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w.ledger.fail["finish"] = 1000
		if res, err := w.Invoke(t.Context(), c); err == nil {
			t.Fatalf("gave %+v", res)
		}
		w.ledger.fail["finish"] = 0
	})
}

func TestStartedAndNotFinished(t *testing.T) {
	idempotent := func(m *capability.Meta) { m.Idempotent = true }
	for name, tt := range map[string]struct {
		meta  func(*capability.Meta)
		again bool
	}{
		"a write stays unknown":     {nil, false},
		"a read runs again":         {read, true},
		"an idempotent write, too":  {idempotent, true},
		"a destructive one, stays":  {func(m *capability.Meta) { m.SideEffect = capability.SideEffectDestructive }, false},
		"one that leaves the house": {func(m *capability.Meta) { m.SideEffect = capability.SideEffectExternal }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: tt.meta})
			crash(t, w, call("k"))
			w.rebuild(w.tool(kit{meta: tt.meta}))
			res := w.invoke(call("k"))
			if tt.again {
				wants(t, res, completed, "")
				equal(t, "runs", w.runs(), 2)
				equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventRetried, gate.EventCompleted})
				return
			}
			wants(t, res, failed, capability.CodeOutcomeUnknown)
			equal(t, "effect", res.Effect, capability.EffectUnknown)
			equal(t, "again", w.invoke(call("k")), res)
			equal(t, "runs", w.runs(), 1)
			equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested, gate.EventStarted, gate.EventUnknown})
			list, err := w.Unsettled(t.Context(), "!hall:example.org")
			if err != nil || len(list) != 1 {
				t.Fatalf("unsettled: %v %v", list, err)
			}
		})
	}
	t.Run("a read whose contract has changed does not run", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: read})
		crash(t, w, call("k"))
		w.rebuild(w.tool(kit{meta: func(m *capability.Meta) { read(m); m.Version = "2" }}))
		// It may have been a write when it was started.
		wants(t, w.invoke(call("k")), failed, capability.CodeOutcomeUnknown)
		equal(t, "runs", w.runs(), 1)
	})
	t.Run("a tool that is gone stays unknown", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: read})
		crash(t, w, call("k"))
		w.rebuild(w.tool(kit{id: "hall.other"}))
		wants(t, w.invoke(call("k")), failed, capability.CodeOutcomeUnknown)
	})
}

func TestR117ClaimedIsContinued(t *testing.T) {
	for _, step := range []string{"start", "pend"} {
		t.Run(step, func(t *testing.T) {
			k := kit{}
			want := completed
			if step == "pend" {
				k.meta, want = gated, waits
			}
			w := one(t, gate.Config{}, k)
			w.ledger.fail[step] = 1
			if res, err := w.Invoke(t.Context(), call("k")); !errors.Is(err, errFault) {
				t.Fatalf("gave %+v, %v", res, err)
			}
			equal(t, "runs", w.runs(), 0)
			w.rebuild(w.tool(k))
			equal(t, "status", w.invoke(call("k")).Status, want)
			equal(t, "requested once", len(w.events(gate.EventFilter{Types: []gate.EventType{gate.EventRequested}})), 1)
		})
	}
}

// A start that was recorded though the answer was lost is a start.
func TestALostAnswerToTheStartIsUnknown(t *testing.T) {
	w := one(t, gate.Config{}, kit{})
	w.ledger.late["start"] = 1
	if res, err := w.Invoke(t.Context(), call("k")); !errors.Is(err, errFault) {
		t.Fatalf("gave %+v, %v", res, err)
	}
	wants(t, w.invoke(call("k")), failed, capability.CodeOutcomeUnknown)
	equal(t, "runs", w.runs(), 0)
}

func TestTheEndIsWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := one(t, gate.Config{}, kit{})
		w.ledger.fail["finish"] = 2
		wants(t, w.invoke(call("k")), completed, "")
		equal(t, "runs", w.runs(), 1)
	})
}

// Duplicates in one process: the handler is entered once, whoever else comes is
// told that nothing is known yet, or to come again, or how it ended.
func TestConcurrentDuplicates(t *testing.T) {
	for name, meta := range map[string]func(*capability.Meta){"a write": nil, "a read": read} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: meta, run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
				time.Sleep(time.Millisecond)
				return json.RawMessage(`1`), nil
			}})
			var wg sync.WaitGroup
			for range 16 {
				wg.Go(func() {
					res, err := w.Invoke(t.Context(), call("k"))
					if err == nil && code(res) != "" && code(res) != capability.CodeOutcomeUnknown {
						t.Errorf("ended %+v", res.Error)
					}
				})
			}
			wg.Wait()
			equal(t, "runs", w.runs(), 1)
			wants(t, w.invoke(call("k")), completed, "")
		})
	}
}

// A read that died is run once more, however many come to ask.
func TestConcurrentRepeatsOfADeadRead(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: read})
	crash(t, w, call("k"))
	w.rebuild(w.tool(kit{meta: read, run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
		time.Sleep(20 * time.Millisecond)
		return json.RawMessage(`1`), nil
	}}))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { _, _ = w.Invoke(t.Context(), call("k")) })
	}
	wg.Wait()
	equal(t, "runs", w.runs(), 2)
	wants(t, w.invoke(call("k")), completed, "")
}

func TestEachWriteFailsInTurn(t *testing.T) {
	for _, tt := range []struct {
		step string
		runs int // after the failed call
	}{{"claim", 0}, {"start", 0}, {"finish", 1}} {
		t.Run(tt.step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := one(t, gate.Config{}, kit{})
				w.ledger.fail[tt.step] = 3
				if res, err := w.Invoke(t.Context(), call("k")); !errors.Is(err, errFault) {
					t.Fatalf("gave %+v, %v", res, err)
				}
				equal(t, "runs", w.runs(), tt.runs)
				w.ledger.fail[tt.step] = 0
				res := w.invoke(call("k"))
				if tt.runs == 0 {
					wants(t, res, completed, "")
				} else {
					wants(t, res, failed, capability.CodeOutcomeUnknown)
				}
				equal(t, "runs", w.runs(), 1)
			})
		})
	}
}
