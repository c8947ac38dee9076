package gate_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

// inline is a configuration whose handler answers as who.
func inline(who string, yes bool) gate.Config {
	return gate.Config{Approvals: gate.Approvals{Handler: func(context.Context, gate.Approval) (*gate.Decision, error) {
		return &gate.Decision{Approver: user(who), Yes: yes, Comment: "so be it"}, nil
	}}}
}

func TestR112InlineApproval(t *testing.T) {
	var info *capability.ApprovalInfo
	var asked gate.Approval
	cfg := inline(bob, true)
	answer := cfg.Approvals.Handler
	cfg.Approvals.Handler = func(ctx context.Context, a gate.Approval) (*gate.Decision, error) {
		asked = a
		d, err := answer(ctx, a)
		clear(a.Input) // what a handler is shown is its own
		return d, err
	}
	w := one(t, cfg, kit{meta: gated, run: func(_ context.Context, rt *capability.Context, _ json.RawMessage) (json.RawMessage, error) {
		info = rt.Call.Approval
		return json.RawMessage(`1`), nil
	}})
	wants(t, w.invoke(call("k")), completed, "")
	equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{
		gate.EventRequested, gate.EventApprovalRequested, gate.EventApproved, gate.EventStarted, gate.EventCompleted,
	})
	equal(t, "runs", w.inputs, []string{`{"who":"carol"}`})
	equal(t, "approver", info.Approver, user(bob))
	for _, ev := range w.events(gate.EventFilter{})[1:4] {
		equal(t, "approval of "+string(ev.Type), ev.ApprovalID, asked.ID)
	}
	equal(t, "who decided", w.events(gate.EventFilter{})[2].Actor, user(bob))
	pending, err := w.ledger.Approvals(t.Context(), gate.ApprovalFilter{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "kept approvals", len(pending), 0)
	wants(t, w.invoke(call("k")), completed, "") // the recorded envelope
	equal(t, "runs", w.runs(), 1)
}

// A yes that is not on record runs nothing; the repeat asks again.
func TestR112AnInlineYesLeavesATrace(t *testing.T) {
	for _, fails := range []int{1, 2} {
		w := one(t, inline(bob, true), kit{meta: gated})
		w.ledger.fail["record"] = fails
		for range fails {
			if _, err := w.Invoke(t.Context(), call("k")); err == nil {
				t.Fatal("it ran without a trace")
			}
		}
		equal(t, "runs", w.runs(), 0)
		wants(t, w.invoke(call("k")), completed, "")
		equal(t, "runs", w.runs(), 1)
	}
}

func TestR113InlineEnds(t *testing.T) {
	handler := func(d *gate.Decision, err error) gate.Config {
		return gate.Config{Approvals: gate.Approvals{Handler: func(context.Context, gate.Approval) (*gate.Decision, error) { return d, err }}}
	}
	selfOK := inline(alice, true)
	selfOK.AllowSelfApproval = true
	for name, tt := range map[string]struct {
		cfg    gate.Config
		before func(w *world)
		status capability.Status
		code   capability.Code
		stage  capability.Stage
		last   gate.EventType
	}{
		"R113 a no":                   {inline(bob, false), nil, failed, capability.CodeApprovalRejected, capability.StageApproval, gate.EventFailed},
		"R115 nothing: people":        {handler(nil, nil), nil, waits, "", "", gate.EventApprovalRequested},
		"R116 an error":               {handler(nil, errFault), nil, failed, capability.CodeInternal, capability.StageApproval, gate.EventFailed},
		"R116 no approver":            {handler(&gate.Decision{Yes: true}, nil), nil, failed, capability.CodeInternal, capability.StageApproval, gate.EventFailed},
		"R116 an approver of no kind": {handler(&gate.Decision{Yes: true, Approver: capability.Actor{ID: bob}}, nil), nil, failed, capability.CodeInternal, capability.StageApproval, gate.EventFailed},
		"R125 the asker":              {inline(alice, true), nil, failed, capability.CodeSelfApproval, capability.StageApproval, gate.EventFailed},
		"R125 the asker's other name": {inline(bob, true), func(w *world) { w.people.link(alice, bob) }, failed, capability.CodeSelfApproval, capability.StageApproval, gate.EventFailed},
		"the asker, allowed":          {selfOK, func(w *world) { w.electors.may[alice] = gate.AnswerYes }, completed, "", "", gate.EventCompleted},
		"somebody who may not":        {inline("@mallory:example.org", true), nil, failed, capability.CodeForbidden, capability.StageAuthorization, gate.EventFailed},
		"nobody can tell: people":     {inline(bob, true), func(w *world) { w.electors.may[bob] = gate.AnswerCannotTell }, waits, "", "", gate.EventApprovalRequested},
		"identities unknown: people":  {inline(bob, true), func(w *world) { w.people.known = false }, waits, "", "", gate.EventApprovalRequested},
		"R116 a panic":                {gate.Config{Approvals: gate.Approvals{Handler: func(context.Context, gate.Approval) (*gate.Decision, error) { panic("hunter2") }}}, nil, failed, capability.CodeInternal, capability.StageApproval, gate.EventFailed},
		"an answer that comes too late": {gate.Config{ApprovalExpiry: 1}, func(w *world) {
			w.cfg.Approvals.Handler = func(context.Context, gate.Approval) (*gate.Decision, error) {
				w.clock = w.clock.Add(1)
				return &gate.Decision{Approver: user(bob), Yes: true}, nil
			}
		}, failed, capability.CodeApprovalExpired, capability.StageApproval, gate.EventFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			tool := makeTool(func() *world { return w }, kit{meta: gated})
			w = newWorld(t, tt.cfg, tool)
			if tt.before != nil {
				tt.before(w)
				w.rebuild(tool)
			}
			res := w.invoke(call("k"))
			wants(t, res, tt.status, tt.code)
			if res.Error != nil {
				equal(t, "stage", res.Error.Stage, tt.stage)
			}
			equal(t, "last", w.last().Type, tt.last)
			if tt.status != completed {
				equal(t, "runs", w.runs(), 0)
			}
		})
	}
}

// An inline yes that is not enough by itself is the first vote.
func TestInlineYesAndQuorum(t *testing.T) {
	w := one(t, inline(bob, true), kit{meta: func(m *capability.Meta) { m.Approval = capability.Approval{Required: true, Quorum: 2} }})
	res := w.invoke(call("k"))
	wants(t, res, waits, "")
	a := w.approval(res.ApprovalID)
	equal(t, "votes", len(a.Votes), 1)
	equal(t, "voter", a.Votes[0].Actor, user(bob))
	if _, err := w.vote(a.ID, carol, true); err != nil {
		t.Fatal(err)
	}
	wants(t, w.resume(a.ID, gate.ResumeOptions{}), completed, "")
}

// One inline yes serves both phases of policies, unless the second asks for more.
func TestInlineYesServesBothPhases(t *testing.T) {
	for name, tt := range map[string]struct {
		second policy.Decision
		asks   int
	}{
		"the same":    {signOff, 1},
		"another one": {policy.Decision{Stance: policy.StanceRequireApproval, Reason: "r", Type: "manager"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			asks := 0
			cfg := inline(bob, true)
			answer := cfg.Approvals.Handler
			cfg.Approvals.Handler = func(ctx context.Context, a gate.Approval) (*gate.Decision, error) {
				asks++
				return answer(ctx, a)
			}
			cfg.Policies = []policy.Policy{says("a", signOff), says("b", tt.second, policy.PhaseExecution)}
			w := one(t, cfg, kit{})
			wants(t, w.invoke(call("k")), completed, "")
			equal(t, "asks", asks, tt.asks)
			equal(t, "runs", w.runs(), 1)
		})
	}
}

func TestInlineHandlerThatIgnoresItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	release := make(chan struct{})
	defer close(release)
	w := one(t, gate.Config{Approvals: gate.Approvals{Handler: func(context.Context, gate.Approval) (*gate.Decision, error) {
		stop()
		<-release
		return nil, nil
	}}}, kit{meta: gated})
	if _, err := w.Invoke(ctx, call("k")); err == nil {
		t.Fatal("a caller that went away got an envelope")
	}
	equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{gate.EventRequested})
}

// groups knows members by group; a group that is not there cannot be told.
type groups map[string][]string

func (g groups) Member(_ context.Context, _ gate.Approval, group string, who capability.Actor) (gate.Answer, string) {
	members, ok := g[group]
	if !ok {
		return gate.AnswerCannotTell, "The directory is down."
	}
	if slices.Contains(members, who.ID) {
		return gate.AnswerYes, ""
	}
	return gate.AnswerNo, ""
}

func TestNamedGroups(t *testing.T) {
	staticGroups := func(names ...string) func(*capability.Meta) {
		return func(m *capability.Meta) { m.Approval = capability.Approval{Required: true, Groups: names} }
	}
	both := groups{"finance": {bob}, "board": {bob, carol}}
	for name, tt := range map[string]struct {
		need   []string
		know   groups
		yes    []string
		state  gate.ApprovalState
		groups []string // of the last vote
	}{
		"one in both":           {[]string{"finance", "board"}, both, []string{bob}, gate.ApprovalApproved, []string{"finance", "board"}},
		"one of two":            {[]string{"finance", "board"}, both, []string{carol}, gate.ApprovalPending, []string{"board"}},
		"one of each":           {[]string{"finance", "board"}, both, []string{carol, bob}, gate.ApprovalApproved, []string{"finance", "board"}},
		"nobody of it":          {[]string{"finance"}, both, []string{carol, dave}, gate.ApprovalPending, nil},
		"a stranger, then hers": {[]string{"board"}, both, []string{dave, carol}, gate.ApprovalApproved, []string{"board"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{Groups: tt.know}, kit{meta: staticGroups(tt.need...)})
			id := w.pending()
			for _, who := range tt.yes {
				if _, err := w.vote(id, who, true); err != nil {
					t.Fatal(err)
				}
			}
			a := w.approval(id)
			equal(t, "state", a.State, tt.state)
			equal(t, "groups", a.Votes[len(a.Votes)-1].Groups, tt.groups)
			if tt.state == gate.ApprovalApproved {
				wants(t, w.resume(id, gate.ResumeOptions{}), completed, "")
			}
		})
	}
	t.Run("a veto of anybody who may decide", func(t *testing.T) {
		w := one(t, gate.Config{Groups: both}, kit{meta: staticGroups("board")})
		id := w.pending()
		if _, err := w.vote(id, dave, false); err != nil {
			t.Fatal(err)
		}
		equal(t, "state", w.approval(id).State, gate.ApprovalRejected)
	})
	t.Run("nobody can tell now", func(t *testing.T) {
		w := one(t, gate.Config{Groups: groups{}}, kit{meta: staticGroups("board")})
		id := w.pending()
		if _, err := w.vote(id, bob, true); err == nil || capability.CodeOf(err) != "" {
			t.Fatalf("got %v; want undecided", err)
		}
		equal(t, "votes", len(w.approval(id).Votes), 0)
	})
	t.Run("no port: refused at construction", func(t *testing.T) {
		w := newWorld(t, gate.Config{})
		w.cfg.Registry = registry(t, w.tool(kit{meta: staticGroups("board")}))
		if _, err := gate.New(w.cfg); err == nil {
			t.Fatal("a group that nobody knows was taken")
		}
	})
	t.Run("no port: a yes is refused", func(t *testing.T) {
		d := signOff
		d.Groups = []string{"board"}
		w := one(t, gate.Config{Policies: []policy.Policy{says("a", d)}}, kit{})
		id := w.pending()
		equal(t, "groups", w.approval(id).Requirements.Groups, []string{"board"})
		if _, err := w.vote(id, bob, true); capability.CodeOf(err) != capability.CodeForbidden {
			t.Fatalf("got %v; want a refusal", err)
		}
		equal(t, "last", w.last().Type, gate.EventDecisionRefused)
		if _, err := w.vote(id, bob, false); err != nil { // a no needs no group
			t.Fatal(err)
		}
		equal(t, "state", w.approval(id).State, gate.ApprovalRejected)
	})
}

// A vote whose groups were edited in the store no longer opens anything.
func TestGroupsAreBoundByTheVotes(t *testing.T) {
	w := one(t, gate.Config{Groups: groups{"board": {bob}}}, kit{meta: func(m *capability.Meta) {
		m.Approval = capability.Approval{Required: true, Groups: []string{"board"}}
	}})
	id := w.approved()
	w.ledger.Ledger = &tampered{w.ledger.Ledger, func(a *gate.Approval) { a.Votes[0].Groups = nil }}
	wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeApprovalMismatch)
	equal(t, "runs", w.runs(), 0)
}
