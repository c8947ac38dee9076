package gate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

func quorum(n int) func(*capability.Meta) {
	return func(m *capability.Meta) { m.Approval = capability.Approval{Required: true, Quorum: n} }
}

func TestR143Decide(t *testing.T) {
	for name, yes := range map[string]bool{"R143 yes": true, "R144 no": false} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.pending()
			w.clock = w.clock.Add(time.Minute)
			a, err := w.Decide(t.Context(), gate.Decision{ApprovalID: id, Approver: user(bob), Yes: yes, Comment: "so be it"})
			if err != nil {
				t.Fatal(err)
			}
			want := gate.ApprovalRejected
			if yes {
				want = gate.ApprovalApproved
			}
			equal(t, "state", a.State, want)
			equal(t, "by", a.DecidedBy, user(bob))
			equal(t, "at", a.DecidedAt, w.clock)
			equal(t, "comment", a.Comment, "so be it")
			t.Run("R185", func(t *testing.T) { equal(t, "who is on record", w.last().Actor, user(bob)) })
			equal(t, "deciding runs nothing", w.runs(), 0)
			code := capability.CodeApprovalConsumed
			if !yes {
				code = capability.CodeApprovalRejected
			}
			if _, err := w.vote(id, carol, true); capability.CodeOf(err) != code {
				t.Errorf("the second answer: %v", err)
			}
			equal(t, "refusal", w.last().Type, gate.EventDecisionRefused)
		})
	}
}

// The order of Decide's checks: each case is refused for the first reason though
// the later ones hold, too.
func TestDecideChecksInOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(w *world, id string)
		who  capability.Actor
		want capability.Code
	}{
		"R145 nobody":               {nil, capability.Actor{}, capability.CodeUnauthenticated},
		"R145 of no kind":           {nil, capability.Actor{ID: bob}, capability.CodeUnauthenticated},
		"it has ended":              {func(w *world, id string) { _, _ = w.vote(id, bob, false) }, user(alice), capability.CodeApprovalRejected},
		"its time is over":          {func(w *world, _ string) { w.clock = w.clock.Add(time.Hour) }, user(alice), capability.CodeApprovalExpired},
		"R125 the asker":            {nil, user(alice), capability.CodeSelfApproval},
		"the asker of another kind": {nil, capability.Actor{ID: alice, Kind: capability.KindService}, capability.CodeSelfApproval},
		"the electors say no":       {nil, user("@mallory:example.org"), capability.CodeForbidden},
		"an answer that is none":    {func(w *world, _ string) { w.electors.may["@eve:example.org"] = 7 }, user("@eve:example.org"), capability.CodeForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.pending()
			if tt.do != nil {
				tt.do(w, id)
			}
			before := w.electors.asked
			_, err := w.Decide(t.Context(), gate.Decision{ApprovalID: id, Approver: tt.who, Yes: true, Cause: "$late"})
			if capability.CodeOf(err) != tt.want {
				t.Fatalf("error %v; want %s", err, tt.want)
			}
			if tt.want != capability.CodeForbidden && w.electors.asked != before {
				t.Error("the electors were asked for nothing")
			}
			ev := w.last()
			equal(t, "audit", ev.Type, gate.EventDecisionRefused)
			equal(t, "code", ev.Data["code"], any(tt.want))
			if a := w.approval(id); a.State == gate.ApprovalApproved || len(a.Votes) > 1 {
				t.Errorf("it counted: %+v", a)
			}
		})
	}
}

func TestR141DecideUnknown(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	for name, do := range map[string]func(id string) error{
		"decide": func(id string) error { _, err := w.vote(id, bob, true); return err },
		"cancel": func(id string) error { _, err := w.Cancel(t.Context(), id, user(bob), ""); return err },
	} {
		err := do("apr_none")
		if e, ok := errors.AsType[*capability.Error](err); !ok || e.Code != capability.CodeInternal || e.Stage != capability.StageApproval {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCannotTellIsNoNo(t *testing.T) {
	for name, do := range map[string]func(w *world){
		"the electors":   func(w *world) { w.electors.may[bob] = gate.AnswerCannotTell },
		"the identities": func(w *world) { w.people.known = false },
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.pending()
			do(w)
			events := len(w.events(gate.EventFilter{}))
			for _, yes := range []bool{true, false} {
				if _, err := w.vote(id, bob, yes); !errors.Is(err, gate.ErrUndecided) || capability.CodeOf(err) != "" {
					t.Errorf("error %v", err)
				}
			}
			equal(t, "events", len(w.events(gate.EventFilter{})), events)
			w.electors.may[bob], w.people.known = gate.AnswerYes, true
			if a, err := w.vote(id, bob, true); err != nil || a.State != gate.ApprovalApproved {
				t.Errorf("asked again: %+v %v", a, err)
			}
		})
	}
}

// Ruling 13: people are compared, not ids, and links are looked up at the moment.
func TestSelfApprovalThroughLinks(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	id := w.pending()
	w.people.link(alice, "did:key:alice")
	w.people.link("did:key:alice", dave)
	if _, err := w.vote(id, dave, true); capability.CodeOf(err) != capability.CodeSelfApproval {
		t.Errorf("dave is alice: %v", err)
	}
	t.Run("linked after the vote and before the run", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: gated})
		id := w.approved()
		w.people.link(alice, bob)
		wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeSelfApproval)
		equal(t, "state", w.approval(id).State, gate.ApprovalApproved)
	})
	t.Run("not the one who completed it", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: quorum(2)})
		id := w.approved() // bob's is the first of two
		if _, err := w.vote(id, carol, true); err != nil {
			t.Fatal(err)
		}
		w.people.link(alice, bob)
		wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeSelfApproval)
	})
	t.Run("it can be allowed", func(t *testing.T) {
		w := one(t, gate.Config{AllowSelfApproval: true}, kit{meta: gated})
		w.electors.may[alice] = gate.AnswerYes
		id := w.pending()
		if _, err := w.vote(id, alice, true); err != nil {
			t.Fatal(err)
		}
		wants(t, w.resume(id, gate.ResumeOptions{}), completed, "")
	})
}

func TestQuorum(t *testing.T) {
	type v struct {
		who string
		yes bool
	}
	for name, tt := range map[string]struct {
		quorum int
		votes  []v
		want   gate.ApprovalState
		rows   int
	}{
		"one of two":       {2, []v{{bob, true}}, gate.ApprovalPending, 1},
		"two of two":       {2, []v{{bob, true}, {carol, true}}, gate.ApprovalApproved, 2},
		"one person twice": {2, []v{{bob, true}, {bob, true}}, gate.ApprovalPending, 1},
		"a veto":           {3, []v{{bob, true}, {carol, false}}, gate.ApprovalRejected, 2},
		"a change of mind": {2, []v{{bob, true}, {bob, false}}, gate.ApprovalRejected, 1},
		"three of three":   {3, []v{{bob, true}, {carol, true}, {bob, true}, {dave, true}}, gate.ApprovalApproved, 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: quorum(tt.quorum)})
			id := w.pending()
			for i, v := range tt.votes {
				if _, err := w.Decide(t.Context(), gate.Decision{ApprovalID: id, Approver: user(v.who), Yes: v.yes, Cause: fmt.Sprint(i)}); err != nil {
					t.Fatal(err)
				}
			}
			a := w.approval(id)
			equal(t, "state", a.State, tt.want)
			equal(t, "votes", len(a.Votes), tt.rows)
		})
	}
}

// Ruling 14: two identities of one person are one vote, whenever the link came.
func TestOnePersonOneVote(t *testing.T) {
	const early = "@aaron:example.org" // sorts before bob
	for _, order := range [][2]string{{bob, early}, {early, bob}} {
		t.Run(order[0]+" first, linked between", func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: quorum(2)})
			w.electors.may[early] = gate.AnswerYes
			id := w.pending()
			if _, err := w.vote(id, order[0], true); err != nil {
				t.Fatal(err)
			}
			w.people.link(bob, early)
			a, err := w.vote(id, order[1], true)
			if err != nil || a.State != gate.ApprovalPending || len(a.Votes) != 1 {
				t.Fatalf("%+v %v", a, err)
			}
		})
	}
	t.Run("linked after both", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: quorum(2)})
		id := w.approved()
		if a, err := w.vote(id, carol, true); err != nil || a.State != gate.ApprovalApproved {
			t.Fatalf("%+v %v", a, err)
		}
		w.people.link(bob, carol)
		wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeApprovalMismatch)
		equal(t, "runs", w.runs(), 0)
	})
}

func TestTheSameAnswerAgainIsNoSecondVote(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	id := w.approved()
	events := len(w.events(gate.EventFilter{}))
	a, err := w.vote(id, bob, true) // the same cause, after the decision
	if err != nil || a.State != gate.ApprovalApproved {
		t.Errorf("%+v %v", a, err)
	}
	equal(t, "events", len(w.events(gate.EventFilter{})), events)
	if _, err := w.Decide(t.Context(), gate.Decision{ApprovalID: id, Approver: user(carol), Yes: true, Cause: "$vote-" + bob}); capability.CodeOf(err) != capability.CodeApprovalConsumed {
		t.Errorf("another's answer with bob's cause: %v", err)
	}
}

func TestRZ14ExpiryAtEquality(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration
		open  bool
	}{
		"R147 just before":  {15*time.Minute - time.Millisecond, true},
		"at the deadline":   {15 * time.Minute, false},
		"a while after":     {time.Hour, false},
		"between two ticks": {15*time.Minute - time.Microsecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.pending()
			w.clock = w.clock.Add(tt.after)
			_, err := w.vote(id, bob, true)
			if (err == nil) != tt.open {
				t.Fatalf("error %v", err)
			}
			if !tt.open {
				equal(t, "state", w.approval(id).State, gate.ApprovalExpired)
				equal(t, "code", capability.CodeOf(err), capability.CodeApprovalExpired)
				wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeApprovalExpired)
			}
		})
	}
}

// Somebody is quicker while the electors are being asked.
func TestR153AQuickerDecision(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	id := w.pending()
	w.electors.before = func() {
		w.electors.before = nil
		_, err := w.ledger.Ledger.Cast(t.Context(), gate.Vote{ApprovalID: id, Person: carol, Actor: user(carol), At: w.clock}, gate.Event{})
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := w.vote(id, bob, true); capability.CodeOf(err) != capability.CodeApprovalRejected {
		t.Errorf("error %v", err)
	}
	t.Run("a hundred at once", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: gated})
		id := w.pending()
		var mu sync.Mutex
		results := map[string]int{}
		var wg sync.WaitGroup
		for i := range 100 {
			who := fmt.Sprintf("@voter%d:example.org", i)
			w.electors.may[who] = gate.AnswerYes
		}
		for i := range 100 {
			wg.Go(func() {
				_, err := w.vote(id, fmt.Sprintf("@voter%d:example.org", i), true)
				mu.Lock()
				defer mu.Unlock()
				results[string(capability.CodeOf(err))]++
			})
		}
		wg.Wait()
		equal(t, "results", results, map[string]int{"": 1, "APPROVAL_CONSUMED": 99})
		equal(t, "losers on record", len(w.events(gate.EventFilter{Types: []gate.EventType{gate.EventDecisionRefused}})), 99)
	})
}

// Ruling 5 and RZ10: what the digest binds cannot be changed in the store, by the
// vote or at the run.
func TestRZ10TheDigestBinds(t *testing.T) {
	base := func(w *world) gate.Approval { return w.approval(w.pending()) }
	fields := map[string]func(*gate.Approval){
		"id":           func(a *gate.Approval) { a.ID = "apr_other" },
		"capability":   func(a *gate.Approval) { a.CapabilityID = "hall.other" },
		"revision":     func(a *gate.Approval) { a.Revision = strings.Replace(a.Revision, ".", "0.", 1) },
		"actor":        func(a *gate.Approval) { a.Actor.ID = bob },
		"actor's kind": func(a *gate.Approval) { a.Actor.Kind = capability.KindService },
		"attributes":   func(a *gate.Approval) { a.Actor.Attributes = map[string]string{"power": "100"} },
		"surface":      func(a *gate.Approval) { a.Surface = capability.SurfaceHTTP },
		"place":        func(a *gate.Approval) { a.Origin.Place = "!other:example.org" },
		"lane":         func(a *gate.Approval) { a.Origin.Lane = "other" },
		"ref":          func(a *gate.Approval) { a.Origin.Ref = "$other" },
		"input":        func(a *gate.Approval) { a.Input = json.RawMessage(`{"who":"mallory"}`) },
		"side effect":  func(a *gate.Approval) { a.SideEffect = capability.SideEffectRead },
		"risk":         func(a *gate.Approval) { a.Risk = capability.RiskCritical },
		"types":        func(a *gate.Approval) { a.Requirements.Types = []string{"x"} },
		"groups":       func(a *gate.Approval) { a.Requirements.Groups = []string{"x"} },
		"quorum":       func(a *gate.Approval) { a.Requirements.Quorum = 0 },
		"expiry":       func(a *gate.Approval) { a.ExpiresAt = a.ExpiresAt.Add(time.Hour) },
		"no expiry":    func(a *gate.Approval) { a.ExpiresAt = time.Time{} },
	}
	for name, change := range fields {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			a := base(w)
			change(&a)
			if d, err := gate.Digest(a); err == nil && d == a.Digest {
				t.Error("the digest is the same")
			}
			if name == "id" {
				return
			}
			// At the vote.
			w.ledger.Ledger = &tampered{Ledger: w.ledger.Ledger, change: change}
			if _, err := w.vote(a.ID, bob, true); capability.CodeOf(err) != capability.CodeApprovalMismatch {
				t.Errorf("a vote on it: %v", err)
			}
			// At the run.
			w = one(t, gate.Config{}, kit{meta: gated})
			id := w.approved()
			w.ledger.Ledger = &tampered{Ledger: w.ledger.Ledger, change: change}
			wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeApprovalMismatch)
			equal(t, "runs", w.runs(), 0)
		})
	}
	for name, change := range map[string]func(*gate.Approval){
		"the input's hash": func(a *gate.Approval) { a.InputHash = "x" },
		"no votes":         func(a *gate.Approval) { a.Votes = nil },
		"the digest":       func(a *gate.Approval) { a.Digest = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.approved()
			w.ledger.Ledger = &tampered{Ledger: w.ledger.Ledger, change: change}
			wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeApprovalMismatch)
		})
	}
	t.Run("it takes what the store does to it", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: gated})
		w.clock = w.clock.Add(123456 * time.Nanosecond) // stores keep milliseconds
		wants(t, w.resume(w.approved(), gate.ResumeOptions{}), completed, "")
	})
}
