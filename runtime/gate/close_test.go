package gate_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

func TestCancel(t *testing.T) {
	mallory := user("@mallory:example.org")
	for name, tt := range map[string]struct {
		do   func(w *world) string
		by   capability.Actor
		want capability.Code
	}{
		"the asker":              {nil, user(alice), ""},
		"somebody who decides":   {nil, user(bob), ""},
		"the house":              {nil, capability.Actor{}, ""},
		"approved, not yet run":  {func(w *world) string { return w.approved() }, user(alice), ""},
		"anybody else":           {nil, mallory, capability.CodeForbidden},
		"an actor of no kind":    {nil, capability.Actor{ID: alice}, capability.CodeUnauthenticated},
		"it has run":             {func(w *world) string { id := w.approved(); w.resume(id, gate.ResumeOptions{}); return id }, user(alice), capability.CodeApprovalConsumed},
		"it was rejected":        {func(w *world) string { id := w.pending(); _, _ = w.vote(id, bob, false); return id }, user(alice), capability.CodeApprovalRejected},
		"its time is over":       {func(w *world) string { id := w.pending(); w.clock = w.clock.Add(time.Hour); return id }, user(alice), capability.CodeApprovalExpired},
		"approved, and too late": {func(w *world) string { id := w.approved(); w.clock = w.clock.Add(time.Hour); return id }, user(alice), capability.CodeApprovalExpired},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			if tt.do == nil {
				tt.do = func(w *world) string { return w.pending() }
			}
			id := tt.do(w)
			a, err := w.Cancel(t.Context(), id, tt.by, "not needed")
			if capability.CodeOf(err) != tt.want || (tt.want == "") != (err == nil) {
				t.Fatalf("error %v; want %s", err, tt.want)
			}
			if tt.want != "" {
				if w.approval(id).State == gate.ApprovalCancelled {
					t.Error("it was cancelled")
				}
				return
			}
			equal(t, "state", a.State, gate.ApprovalCancelled)
			equal(t, "comment", a.Comment, "not needed")
			events := len(w.events(gate.EventFilter{}))
			if _, err := w.Cancel(t.Context(), id, tt.by, "again"); err != nil {
				t.Errorf("again: %v", err)
			}
			equal(t, "events", len(w.events(gate.EventFilter{})), events)
			if _, err := w.vote(id, carol, true); capability.CodeOf(err) != capability.CodeApprovalCancelled {
				t.Errorf("a vote after it: %v", err)
			}
		})
	}
	t.Run("cannot tell", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: gated})
		id := w.pending()
		w.electors.may[bob] = gate.AnswerCannotTell
		if _, err := w.Cancel(t.Context(), id, user(bob), ""); !errors.Is(err, gate.ErrUndecided) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a refusal is on record", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: gated})
		_, _ = w.Cancel(t.Context(), w.pending(), mallory, "")
		equal(t, "event", w.last().Type, gate.EventDecisionRefused)
		equal(t, "who", w.last().Actor, mallory)
	})
}

func TestExpire(t *testing.T) {
	for name, tt := range map[string]struct {
		do    func(w *world) string
		after time.Duration
		want  bool
	}{
		"not yet":            {func(w *world) string { return w.pending() }, 15*time.Minute - 1, false},
		"at the deadline":    {func(w *world) string { return w.pending() }, 15 * time.Minute, true},
		"approved, too late": {func(w *world) string { return w.approved() }, time.Hour, true},
		"it has run":         {func(w *world) string { id := w.approved(); w.resume(id, gate.ResumeOptions{}); return id }, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := tt.do(w)
			w.clock = w.clock.Add(tt.after)
			for _, want := range []bool{tt.want, false} {
				if did, err := w.Expire(t.Context(), id); err != nil || did != want {
					t.Fatalf("%t %v; want %t", did, err, want)
				}
			}
			equal(t, "expired", w.approval(id).State == gate.ApprovalExpired, tt.want)
		})
	}
	t.Run("never", func(t *testing.T) {
		w := one(t, gate.Config{ApprovalExpiry: gate.Never}, kit{meta: gated})
		id := w.pending()
		w.clock = w.clock.Add(1000 * time.Hour)
		if did, err := w.Expire(t.Context(), id); did || err != nil {
			t.Errorf("%t %v", did, err)
		}
		if _, err := w.vote(id, bob, true); err != nil {
			t.Error(err)
		}
	})
}

func TestSettle(t *testing.T) {
	unknown := func(t *testing.T, meta func(*capability.Meta)) (*world, string) {
		t.Helper()
		w := one(t, gate.Config{}, kit{meta: meta})
		w.ledger.late["start"] = 1
		c := call("k")
		if meta == nil {
			_, _ = w.Invoke(t.Context(), c)
			return w, w.invoke(c).ExecutionID
		}
		w.ledger.late["start"] = 0
		id := w.approved()
		w.ledger.late["start"] = 1
		_, _ = w.Resume(t.Context(), id, gate.ResumeOptions{})
		return w, w.resume(id, gate.ResumeOptions{}).ExecutionID
	}
	for name, meta := range map[string]func(*capability.Meta){"nobody had to approve": nil, "it was approved": gated} {
		t.Run(name, func(t *testing.T) {
			for _, done := range []bool{true, false} {
				w, id := unknown(t, meta)
				e, err := w.Settle(t.Context(), id, user(bob), done, "I looked")
				if err != nil || e.Settled == nil || e.Settled.Done != done || e.Unsettled() {
					t.Fatalf("%+v %v", e, err)
				}
				equal(t, "event", w.last().Type, gate.EventSettled)
				equal(t, "who", w.last().Actor, user(bob))
				if _, err := w.Settle(t.Context(), id, user(bob), done, ""); err != nil {
					t.Errorf("the same again: %v", err)
				}
				if _, err := w.Settle(t.Context(), id, user(bob), !done, ""); err == nil {
					t.Error("settled twice")
				}
				if _, err := w.Settle(t.Context(), id, user(carol), done, ""); err == nil {
					t.Error("settled by two")
				}
				equal(t, "runs", w.runs(), 0) // nothing is run again
				res, err := w.Execution(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				equal(t, "the envelope stays", res.Result.Error.Code, capability.CodeOutcomeUnknown)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		w, id := unknown(t, nil)
		for who, want := range map[capability.Code]capability.Actor{
			capability.CodeForbidden:       user("@mallory:example.org"),
			capability.CodeSelfApproval:    user(alice),
			capability.CodeUnauthenticated: {},
		} {
			if _, err := w.Settle(t.Context(), id, want, true, ""); capability.CodeOf(err) != who {
				t.Errorf("%s: %v", want.ID, err)
			}
			equal(t, "event", w.last().Type, gate.EventDecisionRefused)
		}
		w.electors.may[bob] = gate.AnswerCannotTell
		if _, err := w.Settle(t.Context(), id, user(bob), true, ""); !errors.Is(err, gate.ErrUndecided) {
			t.Errorf("cannot tell: %v", err)
		}
		if _, err := w.Settle(t.Context(), "exe_none", user(bob), true, ""); capability.CodeOf(err) != capability.CodeInternal {
			t.Errorf("unknown id: %v", err)
		}
	})
	t.Run("nothing is unknown", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{})
		_, err := w.Settle(t.Context(), w.invoke(call("k")).ExecutionID, user(bob), true, "")
		if e, ok := errors.AsType[*capability.Error](err); !ok || e.Public != "Nothing about it is unknown, so there is nothing to settle." {
			t.Errorf("error %v", err)
		}
	})
}

func TestView(t *testing.T) {
	hide := func(f func(json.RawMessage) (json.RawMessage, error)) func(*capability.Meta) {
		return func(m *capability.Meta) { gated(m); m.RedactInput = f }
	}
	for name, tt := range map[string]struct {
		meta     func(*capability.Meta)
		shown    string
		redacted bool
	}{
		"as it will run": {gated, `{"who":"carol"}`, false},
		"redacted":       {hide(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`"…"`), nil }), `"…"`, true},
		"it fails":       {hide(func(json.RawMessage) (json.RawMessage, error) { return nil, errFault }), `"(withheld)"`, true},
		"it panics":      {hide(func(json.RawMessage) (json.RawMessage, error) { panic("x") }), `"(withheld)"`, true},
		"nonsense":       {hide(func(json.RawMessage) (json.RawMessage, error) { return json.RawMessage(`{`), nil }), `"(withheld)"`, true},
		"it scribbles":   {hide(func(in json.RawMessage) (json.RawMessage, error) { clear(in); return json.RawMessage(`1`), nil }), `1`, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: tt.meta})
			id := w.approved()
			v, err := w.View(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "shown", string(v.Shown), tt.shown)
			equal(t, "redacted", v.Redacted, tt.redacted)
			w.resume(id, gate.ResumeOptions{})
			equal(t, "what ran", w.inputs, []string{`{"who":"carol"}`})
			w.rebuild(w.tool(kit{id: "hall.other"}))
			if v, err = w.View(t.Context(), id); err != nil || !v.Gone {
				t.Errorf("gone: %+v %v", v, err)
			}
		})
	}
}
