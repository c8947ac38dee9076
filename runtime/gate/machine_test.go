package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"moothall/internal/pgtest"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/gate/memory"
	"moothall/store"
)

// errKilled is the panic of a process that dies at a step of the ledger.
var errKilled = errors.New("killed")

// mortal is a ledger at whose steps the process can die: before a step is taken
// or right after it.
type mortal struct {
	gate.Ledger
	step  string
	after bool
}

func die[T any](m *mortal, step string, do func() (T, error)) (T, error) {
	hit := m.step == step
	if hit && !m.after {
		m.step = ""
		panic(errKilled)
	}
	v, err := do()
	if hit {
		m.step = ""
		panic(errKilled)
	}
	return v, err
}

func die0(m *mortal, step string, do func() error) error {
	_, err := die(m, step, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

func (m *mortal) Claim(ctx context.Context, e gate.Execution, ev gate.Event) (have gate.Execution, fresh bool, err error) {
	err = die0(m, "claim", func() error { have, fresh, err = m.Ledger.Claim(ctx, e, ev); return err })
	return have, fresh, err
}

func (m *mortal) Start(ctx context.Context, s gate.Start) error {
	return die0(m, "start", func() error { return m.Ledger.Start(ctx, s) })
}

func (m *mortal) Finish(ctx context.Context, f gate.Finish) error {
	return die0(m, "finish", func() error { return m.Ledger.Finish(ctx, f) })
}

func (m *mortal) Settle(ctx context.Context, id string, s gate.Settlement, ev gate.Event) error {
	return die0(m, "settle", func() error { return m.Ledger.Settle(ctx, id, s, ev) })
}

func (m *mortal) Close(ctx context.Context, c gate.Close) (gate.Approval, error) {
	return die(m, "close", func() (gate.Approval, error) { return m.Ledger.Close(ctx, c) })
}

func (m *mortal) Cast(ctx context.Context, v gate.Vote, ev gate.Event) (gate.Approval, error) {
	return die(m, "cast", func() (gate.Approval, error) { return m.Ledger.Cast(ctx, v, ev) })
}

// ends are the events that end an approval; each approval gets exactly one.
var ends = []gate.EventType{
	gate.EventRejected, gate.EventExpired, gate.EventApprovalCancelled, gate.EventSuperseded, gate.EventStale, gate.EventStarted,
}

// machine plays an approval: whatever happens in whatever order, with the process
// dying at any step, the handler is entered at most once.
type machine struct {
	w       *world
	mortal  *mortal
	kit     kit
	id      string
	ended   gate.ApprovalState
	version int
	causes  int
}

func newMachine(t *testing.T, rt *rapid.T, ledger gate.Ledger) *machine {
	t.Helper()
	m := &machine{}
	q := rapid.IntRange(1, 2).Draw(rt, "quorum")
	fails := rapid.Bool().Draw(rt, "handler fails")
	m.kit = kit{meta: quorum(q), run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
		if fails {
			return nil, errFault
		}
		return json.RawMessage(`1`), nil
	}}
	m.w = one(t, gate.Config{}, kit{})
	m.mortal = &mortal{Ledger: ledger}
	m.w.ledger.Ledger = m.mortal
	m.w.rebuild(m.w.tool(m.kit))
	m.id = m.w.pending()
	return m
}

// do runs f as one process would; if it dies in f, there is a new one.
func (m *machine) do(f func()) {
	defer func() {
		if v := recover(); v != nil {
			if err, ok := v.(error); !ok || !errors.Is(err, errKilled) {
				panic(v)
			}
			m.w.rebuild(m.w.tool(m.kit))
		}
	}()
	f()
}

// rarely is true now and then, so that not every play ends early.
func rarely(rt *rapid.T) bool { return rapid.IntRange(0, 7).Draw(rt, "rarely") == 7 }

func (m *machine) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"approve": func(rt *rapid.T) {
			who := rapid.SampledFrom([]string{bob, carol}).Draw(rt, "who")
			m.do(func() { _, _ = m.w.vote(m.id, who, true) })
		},
		"vote": func(rt *rapid.T) {
			who := rapid.SampledFrom([]string{alice, bob, carol, dave, "@mallory:example.org"}).Draw(rt, "who")
			yes := !rarely(rt)
			m.causes++
			m.do(func() {
				_, _ = m.w.Decide(m.w.t.Context(), gate.Decision{ApprovalID: m.id, Approver: user(who), Yes: yes, Cause: fmt.Sprint(m.causes)})
			})
		},
		"resume": func(rt *rapid.T) {
			key := rapid.SampledFrom([]string{"", "", "other"}).Draw(rt, "key")
			m.do(func() { _, _ = m.w.Resume(m.w.t.Context(), m.id, gate.ResumeOptions{Key: key}) })
		},
		"cancel": func(rt *rapid.T) {
			if !rarely(rt) {
				return
			}
			by := rapid.SampledFrom([]capability.Actor{{}, user(alice), user("@mallory:example.org")}).Draw(rt, "by")
			m.do(func() { _, _ = m.w.Cancel(m.w.t.Context(), m.id, by, "") })
		},
		"expire": func(*rapid.T) { m.do(func() { _, _ = m.w.Expire(m.w.t.Context(), m.id) }) },
		"settle": func(rt *rapid.T) {
			done := rapid.Bool().Draw(rt, "done")
			m.do(func() { m.settle(done) })
		},
		"time": func(rt *rapid.T) {
			m.w.clock = m.w.clock.Add(time.Duration(rapid.IntRange(0, 3).Draw(rt, "minutes")) * time.Minute)
		},
		"kill": func(rt *rapid.T) {
			m.mortal.step = rapid.SampledFrom([]string{"claim", "start", "start", "finish", "finish", "close", "cast", "settle"}).Draw(rt, "at")
			m.mortal.after = rapid.Bool().Draw(rt, "after")
		},
		"restart": func(*rapid.T) { m.w.rebuild(m.w.tool(m.kit)) },
		"change": func(rt *rapid.T) {
			if rarely(rt) {
				m.version++
				was, v := m.kit.meta, fmt.Sprint(m.version)
				m.kit.meta = func(c *capability.Meta) { was(c); c.Version = v }
				m.w.rebuild(m.w.tool(m.kit))
			}
		},
		"": m.check,
	}
}

func (m *machine) settle(done bool) {
	list, err := m.w.Unsettled(m.w.t.Context(), "")
	if err != nil {
		m.w.t.Fatal(err)
	}
	for _, e := range list {
		_, _ = m.w.Settle(m.w.t.Context(), e.ID, user(bob), done, "")
	}
}

// check holds after every step.
func (m *machine) check(rt *rapid.T) {
	a := m.w.approval(m.id)
	runs := m.w.runs()
	if runs > 1 {
		rt.Fatalf("the handler was entered %d times", runs)
	}
	if runs == 1 && a.State != gate.ApprovalConsumed {
		rt.Fatalf("it ran under an approval that is %s", a.State)
	}
	if (a.State == gate.ApprovalConsumed) != (a.ConsumedBy != "") {
		rt.Fatalf("%s by %q", a.State, a.ConsumedBy)
	}
	if m.ended != "" && a.State != m.ended {
		rt.Fatalf("it left its end: %s became %s", m.ended, a.State)
	}
	want := 0
	if !a.State.Open() {
		m.ended, want = a.State, 1
	}
	if got := len(m.w.events(gate.EventFilter{ApprovalID: m.id, Types: ends})); got != want {
		rt.Fatalf("%s with %d ends on record", a.State, got)
	}
}

// finish lets time and the house do what they do in the end: everything has one
// stated end then.
func (m *machine) finish(rt *rapid.T) {
	m.mortal.step = ""
	m.do(func() { _, _ = m.w.Resume(m.w.t.Context(), m.id, gate.ResumeOptions{}) })
	m.do(func() { _, _ = m.w.Resume(m.w.t.Context(), m.id, gate.ResumeOptions{Key: "other"}) })
	m.w.clock = m.w.clock.Add(time.Hour)
	m.do(func() { _, _ = m.w.Expire(m.w.t.Context(), m.id) })
	m.settle(true)
	m.check(rt)
	a := m.w.approval(m.id)
	if a.State.Open() {
		rt.Fatalf("it is still %s", a.State)
	}
	if a.State != gate.ApprovalConsumed {
		return
	}
	e, err := m.w.Execution(m.w.t.Context(), a.ConsumedBy)
	if err != nil {
		rt.Fatal(err)
	}
	if !slices.Contains([]gate.ExecState{gate.ExecCompleted, gate.ExecFailed, gate.ExecUnknown}, e.State) || e.Result == nil || e.Unsettled() {
		rt.Fatalf("the run is %s with %+v", e.State, e.Result)
	}
	if m.w.runs() == 0 && e.State != gate.ExecUnknown {
		rt.Fatalf("it never ran and is %s", e.State)
	}
}

func TestAnyInterleavingRunsAtMostOnce(t *testing.T) {
	anyInterleaving(t, func() (gate.Ledger, func()) { return memory.New(), func() {} })
}

// The same on both databases, each play on a fresh one. Making one takes longer
// than playing, so there are fewer plays.
func TestAnyInterleavingRunsAtMostOnceInADatabase(t *testing.T) {
	open := func(t *testing.T, cfg store.Config) (gate.Ledger, func()) {
		t.Helper()
		st, err := store.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return st.Ledger(), func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Log("engine: sqlite") // counted by internal/tally
		plays(t, "40")
		dir, n := t.TempDir(), 0
		anyInterleaving(t, func() (gate.Ledger, func()) {
			n++
			return open(t, store.Config{Path: filepath.Join(dir, fmt.Sprint(n))})
		})
	})
	t.Run("postgres", func(t *testing.T) {
		plays(t, "15")
		anyInterleaving(t, func() (gate.Ledger, func()) {
			return open(t, store.Config{Type: store.TypePostgres, URI: pgtest.DSN(t), MaxConns: 4})
		})
	})
}

// plays sets how many plays rapid makes in this test.
func plays(t *testing.T, n string) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	was := f.Value.String()
	if err := f.Value.Set(n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Value.Set(was) })
}

func anyInterleaving(t *testing.T, fresh func() (gate.Ledger, func())) {
	t.Helper()
	var ran, unknown int
	rapid.Check(t, func(rt *rapid.T) {
		ledger, done := fresh()
		defer done()
		m := newMachine(t, rt, ledger)
		rt.Repeat(m.actions())
		m.finish(rt)
		ran += m.w.runs()
		if a := m.w.approval(m.id); a.State == gate.ApprovalConsumed {
			if e, err := m.w.Execution(t.Context(), a.ConsumedBy); err == nil && e.State == gate.ExecUnknown {
				unknown++
			}
		}
	})
	t.Logf("%d of the approvals ran, %d ended unknown", ran, unknown)
	if ran == 0 {
		t.Error("the machine never got as far as a run")
	}
}
