package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

// What somebody who wants to break the gate tried, and no longer can.

// A resumption under the suspended call's own key runs what was approved.
func TestHostileResumeSameKey(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	id := w.approved()
	res, err := w.Resume(t.Context(), id, gate.ResumeOptions{Key: "k"})
	t.Logf("%+v %v err=%v state=%s runs=%d", res.Status, res.Error, err, w.approval(id).State, w.runs())
	res, err = w.Resume(t.Context(), id, gate.ResumeOptions{})
	t.Logf("then: %+v %v err=%v runs=%d", res.Status, res.Error, err, w.runs())
	if w.runs() != 1 {
		t.Error("approved call was lost")
	}
}

// A resumption under the key of another call gives none of that call's results.
func TestHostileResumeForeignKey(t *testing.T) {
	ask := true
	p := rule{"p", nil, func(_ context.Context, q policy.Request) (policy.Decision, error) {
		if ask {
			return policy.Decision{Stance: policy.StanceRequireApproval, Reason: "r"}, nil
		}
		return policy.Decision{Stance: policy.StanceAllow}, nil
	}}
	w := one(t, gate.Config{Policies: []policy.Policy{p}}, kit{})
	id := w.approved()
	ask = false
	r0 := w.invoke(call("other"))
	res, err := w.Resume(t.Context(), id, gate.ResumeOptions{Key: "other"})
	t.Logf("%v %v err=%v same=%v state=%s runs=%d", res.Status, res.Error, err, res.ExecutionID == r0.ExecutionID, w.approval(id).State, w.runs())
	if res.Status == completed && w.runs() == 1 {
		t.Error("completed without running the approved call")
	}
}

// 2 retry: first attempt unknown, second NoEffect
func TestHostileEffectAcrossAttempts(t *testing.T) {
	n := 0
	w := one(t, gate.Config{}, kit{meta: func(m *capability.Meta) {
		m.Idempotent = true
		m.Retry = capability.Retry{Max: 1, Backoff: time.Millisecond}
	}, run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
		n++
		if n == 1 {
			e := capability.Failed("boom after write", false)
			e.Retryable = true
			return nil, e
		}
		return nil, capability.Refuse("no")
	}})
	r := w.invoke(call("k"))
	if r.Effect != capability.EffectUnknown {
		t.Errorf("n=%d effect=%q", n, r.Effect)
	}
}

type allGroups struct{}

func (allGroups) Member(context.Context, gate.Approval, string, capability.Actor) (gate.Answer, string) {
	return gate.AnswerYes, ""
}

// 4 policy changes the tool's groups
func TestHostilePolicyMutatesGroups(t *testing.T) {
	p := rule{"p", nil, func(_ context.Context, q policy.Request) (policy.Decision, error) {
		if len(q.Meta.Approval.Groups) > 0 {
			q.Meta.Approval.Groups[0] = "friends"
		}
		return policy.Decision{Stance: policy.StanceAllow}, nil
	}}
	w := one(t, gate.Config{Policies: []policy.Policy{p}, Groups: allGroups{}}, kit{meta: func(m *capability.Meta) {
		m.Approval.Required = true
		m.Approval.Groups = []string{"finance"}
	}})
	id := w.pending()
	if g := w.approval(id).Requirements.Groups; g[0] != "finance" {
		t.Errorf("groups %v", g)
	}
}

// 6 tamper each field
func TestHostileTamper(t *testing.T) {
	for name, ch := range map[string]func(*gate.Approval){
		"reasons":     func(a *gate.Approval) { a.Reasons = []string{"harmless"} },
		"correlation": func(a *gate.Approval) { a.CorrelationID = "$evil" },
		"execution":   func(a *gate.Approval) { a.ExecutionID = "exe_other" },
		"requestedAt": func(a *gate.Approval) { a.RequestedAt = a.RequestedAt.Add(-time.Hour) },
		"decidedBy":   func(a *gate.Approval) { a.DecidedBy = user(carol) },
		"votes":       func(a *gate.Approval) { a.Votes[0].Actor = user(dave) },
		"expiry":      func(a *gate.Approval) { a.ExpiresAt = time.Time{} },
		"expirysub":   func(a *gate.Approval) { a.ExpiresAt = a.ExpiresAt.Add(time.Hour) },
		"origin":      func(a *gate.Approval) { a.Origin.Ref = "x" },
		"inputhash":   func(a *gate.Approval) { a.InputHash = "x" },
		"risk":        func(a *gate.Approval) { a.Risk = "critical" },
		"attr":        func(a *gate.Approval) { a.Actor.Attributes = map[string]string{"admin": "1"} },
	} {
		if ch == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.approved()
			w.ledger.Ledger = &tampered{w.ledger.Ledger, ch}
			res, err := w.Resume(t.Context(), id, gate.ResumeOptions{})
			if code(res) != capability.CodeApprovalMismatch {
				t.Errorf("%s: %s %v err=%v runs=%d", name, res.Status, res.Error, err, w.runs())
			}
		})
	}
}

// 6b unvoted quorum: decidedBy tampered, two linked voters
func TestHostileDecidedByFillsQuorum(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: func(m *capability.Meta) { m.Approval.Required = true; m.Approval.Quorum = 2 }})
	id := w.pending()
	_, _ = w.vote(id, bob, true)
	_, _ = w.vote(id, carol, true)
	w.people.link(bob, carol)
	w.ledger.Ledger = &tampered{w.ledger.Ledger, func(a *gate.Approval) { a.DecidedBy = user(dave) }}
	res, err := w.Resume(t.Context(), id, gate.ResumeOptions{})
	if w.runs() != 0 {
		t.Errorf("ran with one person's votes: %v %v", res.Status, err)
	}
}

// 8 two concurrent resumes with keys of their own, superseding
func TestHostileDoubleSupersede(t *testing.T) {
	more := false
	var in sync.WaitGroup
	p := rule{"p", nil, func(_ context.Context, q policy.Request) (policy.Decision, error) {
		d := policy.Decision{Stance: policy.StanceRequireApproval, Reason: "r", Type: "a"}
		if more {
			d.Type = "b"
			if q.ApprovalID != "" {
				in.Done()
				in.Wait()
			}
		}
		return d, nil
	}}
	w := one(t, gate.Config{Policies: []policy.Policy{p}}, kit{})
	id := w.approved()
	more = true
	in.Add(2)
	var wg sync.WaitGroup
	ids := make([]string, 2)
	for i := range 2 {
		wg.Go(func() {
			r, err := w.Resume(context.Background(), id, gate.ResumeOptions{Key: fmt.Sprint("z", i)})
			ids[i] = r.ApprovalID
			t.Logf("%s %v %v %v", r.Status, r.ApprovalID, r.Error, err)
		})
	}
	wg.Wait()
	more = true
	in.Add(2)
	for _, a := range ids {
		wg.Go(func() {
			if a == "" {
				return
			}
			_, _ = w.vote(a, bob, true)
			r, err := w.Resume(context.Background(), a, gate.ResumeOptions{})
			t.Logf("%s %v %v", r.Status, r.Error, err)
		})
	}
	wg.Wait()
	if w.runs() > 1 {
		t.Errorf("one request ran %d times", w.runs())
	}
}

type sinkf func(gate.Event) error

func (f sinkf) Write(_ context.Context, e gate.Event) error { return f(e) }

// 13 slow strict sink past the deadline
func TestHostileStrictLate(t *testing.T) {
	var w *world
	w = newWorld(t, gate.Config{}, makeTool(func() *world { return w }, kit{meta: gated}))
	w.cfg.Audit = gate.Audit{Strict: true, Sinks: []gate.Sink{sinkf(func(e gate.Event) error {
		if e.Type == gate.EventStarted {
			w.clock = w.clock.Add(time.Hour)
		}
		return nil
	})}}
	w.cfg.Registry = nil
	w.rebuild(makeTool(func() *world { return w }, kit{meta: gated}))
	id := w.approved()
	r := w.resume(id, gate.ResumeOptions{})
	if w.runs() != 0 {
		t.Errorf("ran after its deadline: %s", r.Status)
	}
}

type badContexts struct{}

func (badContexts) Context(context.Context, capability.CallInfo, gate.Origin) (*capability.Context, error) {
	panic("x")
}

func TestHostilePanics(t *testing.T) {
	try := func(name string, f func()) {
		defer func() {
			if e := recover(); e != nil {
				t.Errorf("%s: panic reached the caller: %v", name, e)
			}
		}()
		f()
	}
	w := one(t, gate.Config{}, kit{})
	cfg := w.cfg
	cfg.Contexts = badContexts{}
	g, err := gate.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	try("contexts", func() { _, _ = g.Invoke(t.Context(), call("c")) })
	w2 := one(t, gate.Config{}, kit{meta: gated})
	id := w2.pending()
	w2.electors.before = func() { panic("x") }
	try("electors", func() { _, _ = w2.vote(id, bob, true) })
}

// 16 handler's invented code
func TestHostileInventedCode(t *testing.T) {
	for _, e := range []*capability.Error{{Code: "EVIL", Public: "secret pg password", Expose: true}, {Code: "EVIL"}, capability.Fail(capability.CodeApprovalRequired), {}} {
		w := one(t, gate.Config{}, kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) { return nil, e }})
		r := w.invoke(call("k"))
		b, _ := json.Marshal(r)
		t.Logf("%s", b)
	}
}

// 17 stale end of a crashed write whose tool is now a read
func TestHostileCrashStale(t *testing.T) {
	w := one(t, gate.Config{}, kit{})
	w.ledger.fail["finish"] = 3
	_, err := w.Invoke(t.Context(), call("k"))
	t.Log(err)
	w.rebuild(w.tool(kit{meta: read}))
	r := w.invoke(call("k"))
	t.Log(r.Status, r.Error)
	if r.Effect != capability.EffectUnknown {
		t.Errorf("write that may have happened: effect %q, runs %d", r.Effect, w.runs())
	}
}

// What a tool's owner changes after the start changes nothing in the gate.
func TestHostileOwnerChangesATool(t *testing.T) {
	var w *world
	c := makeTool(func() *world { return w }, kit{meta: gated})
	w = newWorld(t, gate.Config{}, c)
	c.Meta.Approval.Required, c.Meta.Expose[0] = false, capability.SurfaceHTTP
	if r := w.invoke(call("k")); r.Status != waits {
		t.Errorf("a changed capability changed the gate: %s", r.Status)
	}
}
