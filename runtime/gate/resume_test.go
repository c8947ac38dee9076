package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

func TestR119ApproveThenResume(t *testing.T) {
	var seen capability.CallInfo
	w := one(t, gate.Config{}, kit{meta: gated, run: func(_ context.Context, rt *capability.Context, _ json.RawMessage) (json.RawMessage, error) {
		seen = rt.Call
		return json.RawMessage(`1`), nil
	}})
	first := w.invoke(call("k"))
	if _, err := w.vote(first.ApprovalID, bob, true); err != nil {
		t.Fatal(err)
	}
	res := w.resume(first.ApprovalID, gate.ResumeOptions{})
	wants(t, res, completed, "")
	if res.ExecutionID == first.ExecutionID {
		t.Error("the resumption is no execution of its own")
	}
	equal(t, "actor", seen.Actor, user(alice))
	equal(t, "approver", seen.Approval, &capability.ApprovalInfo{ID: first.ApprovalID, Approver: user(bob)})
	t.Run("RZ11", func(t *testing.T) { equal(t, "correlation", seen.CorrelationID, "$ask") })
	// The resumption is journalled under a key of its own, so it is requested, too.
	equal(t, "events", w.types(gate.EventFilter{}), []gate.EventType{
		gate.EventRequested, gate.EventApprovalRequested, gate.EventApproved, gate.EventRequested, gate.EventStarted, gate.EventCompleted,
	})
	for _, e := range w.events(gate.EventFilter{})[1:] {
		equal(t, string(e.Type)+" names the approval", e.ApprovalID, first.ApprovalID)
	}
	a := w.approval(first.ApprovalID)
	equal(t, "state", a.State, gate.ApprovalConsumed)
	equal(t, "consumed by", a.ConsumedBy, res.ExecutionID)
	t.Run("R137", func(t *testing.T) { equal(t, "what ran", w.inputs, []string{`{"who":"carol"}`}) })
}

func TestR120Again(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	id := w.approved()
	res := w.resume(id, gate.ResumeOptions{Key: "mine"})
	equal(t, "the same key", w.resume(id, gate.ResumeOptions{Key: "mine"}), res)
	for _, key := range []string{"", "other"} {
		wants(t, w.resume(id, gate.ResumeOptions{Key: key}), failed, capability.CodeApprovalConsumed)
	}
	equal(t, "runs", w.runs(), 1)
}

func TestR121Concurrently(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	id := w.approved()
	var mu sync.Mutex
	ended := map[string]int{}
	var wg sync.WaitGroup
	for _, key := range []string{"a", "b"} {
		wg.Go(func() {
			res, err := w.Resume(t.Context(), id, gate.ResumeOptions{Key: key})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ended[string(res.Status)+string(code(res))]++
		})
	}
	wg.Wait()
	equal(t, "ended", ended, map[string]int{"completed": 1, "failedAPPROVAL_CONSUMED": 1})
	equal(t, "runs", w.runs(), 1)
}

// Where the approval stands decides what a resumption is told.
func TestR123States(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(w *world) string
		want capability.Code
	}{
		"pending": {func(w *world) string { return w.pending() }, capability.CodeApprovalPending},
		"R123 rejected": {func(w *world) string {
			id := w.pending()
			_, _ = w.vote(id, bob, false)
			return id
		}, capability.CodeApprovalRejected},
		"R124 approved, and too late": {func(w *world) string {
			id := w.approved()
			w.clock = w.clock.Add(16 * time.Minute)
			return id
		}, capability.CodeApprovalExpired},
		"R149 at the deadline": {func(w *world) string {
			id := w.approved()
			w.clock = w.clock.Add(15 * time.Minute)
			return id
		}, capability.CodeApprovalExpired},
		"R148 pending, and too late": {func(w *world) string {
			id := w.pending()
			w.clock = w.clock.Add(16 * time.Minute)
			return id
		}, capability.CodeApprovalExpired},
		"R136 cancelled": {func(w *world) string {
			id := w.approved()
			_, _ = w.Cancel(w.t.Context(), id, capability.Actor{}, "")
			return id
		}, capability.CodeApprovalCancelled},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := tt.do(w)
			res := w.resume(id, gate.ResumeOptions{})
			wants(t, res, failed, tt.want)
			equal(t, "stage", res.Error.Stage, capability.StageApproval)
			equal(t, "retryable", res.Error.Retryable, tt.want == capability.CodeApprovalPending)
			equal(t, "runs", w.runs(), 0)
			if tt.want == capability.CodeApprovalExpired {
				equal(t, "state", w.approval(id).State, gate.ApprovalExpired)
			}
		})
	}
}

// R127, R132–R135: guards come before everything, and a stranger learns nothing.
func TestR132Guards(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	unknown := w.resume("apr_00000000-0000-0000-0000-000000000000", gate.ResumeOptions{})
	t.Run("R127 an unknown one", func(t *testing.T) {
		wants(t, unknown, failed, capability.CodeInternal)
		equal(t, "stage", unknown.Error.Stage, capability.StageApproval)
		equal(t, "on record", w.last().Actor, capability.Actor{ID: "unknown", Kind: capability.KindAnonymous})
	})
	w.resume("apr_'; --\x00", gate.ResumeOptions{})
	equal(t, "a stranger's words are not", w.last().ApprovalID, "")

	mallory, service := user("@mallory:example.org"), capability.Actor{ID: alice, Kind: capability.KindService}
	pending := w.pending()
	for name, o := range map[string]gate.ResumeOptions{
		"R132 another actor":   {ExpectedActor: &mallory},
		"R133 another kind":    {ExpectedActor: &service},
		"another surface":      {ExpectedSurface: capability.SurfaceMCP},
		"nobody":               {ExpectedActor: &capability.Actor{}},
		"R135 both, and early": {ExpectedActor: &mallory, ExpectedSurface: capability.SurfaceHTTP},
	} {
		t.Run(name, func(t *testing.T) {
			res := w.resume(pending, o)
			wants(t, res, failed, capability.CodeResumeMismatch)
			equal(t, "face", res.Error.Face(), unknown.Error.Face())
			equal(t, "stage", res.Error.Stage, unknown.Error.Stage)
			equal(t, "message", res.Error.Public, unknown.Error.Public)
			equal(t, "retryable", res.Error.Retryable, false)
			equal(t, "the rest", []any{res.ExecutionID, res.ApprovalID, res.Effect}, []any{"", "", ""})
			ev := w.last()
			equal(t, "code on record", ev.Data["code"], any(capability.CodeResumeMismatch))
			if o.ExpectedActor != nil && o.ExpectedActor.ID != "" {
				equal(t, "who is on record", ev.Actor, *o.ExpectedActor)
			}
			if o.ExpectedSurface != "" {
				equal(t, "where", ev.Surface, o.ExpectedSurface)
			}
			// What cannot be put on record is the same fault for both.
			w.ledger.fail["record"] = 2
			_, err1 := w.Resume(t.Context(), pending, o)
			_, err2 := w.Resume(t.Context(), "apr_none", o)
			if err1 == nil || err2 == nil || err1.Error() != err2.Error() {
				t.Errorf("%v is not %v", err1, err2)
			}
		})
	}
	if _, err := w.vote(pending, bob, true); err != nil {
		t.Fatal(err)
	}
	me := user(alice)
	t.Run("R131 the right one", func(t *testing.T) {
		wants(t, w.resume(pending, gate.ResumeOptions{ExpectedActor: &me, ExpectedSurface: capability.SurfaceCommand}), completed, "")
	})
}

func TestRuling10Attributes(t *testing.T) {
	fresh := user(alice)
	for name, tt := range map[string]struct {
		expected   *capability.Actor
		attributes map[string]string
		want       string
	}{
		"nobody expected: as recorded": {nil, nil, "old"},
		"fresh ones":                   {&fresh, map[string]string{"power": "new"}, "new"},
		"fresh, and there are none":    {&fresh, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var seen string
			p := rule{"p", nil, func(_ context.Context, r policy.Request) (policy.Decision, error) {
				seen = r.Actor.Attributes["power"]
				return allow, nil
			}}
			w := one(t, gate.Config{Policies: []policy.Policy{p}}, kit{meta: gated})
			c := call("k")
			c.Actor.Attributes = map[string]string{"power": "old"}
			id := w.invoke(c).ApprovalID
			if _, err := w.vote(id, bob, true); err != nil {
				t.Fatal(err)
			}
			fresh.Attributes = tt.attributes
			wants(t, w.resume(id, gate.ResumeOptions{ExpectedActor: tt.expected}), completed, "")
			equal(t, "power", seen, tt.want)
		})
	}
}

// What has changed since the question was put.
func TestRZ3Changes(t *testing.T) {
	for name, tt := range map[string]struct {
		k        kit
		policies []policy.Policy
		want     capability.Code
		state    gate.ApprovalState
	}{
		"nothing":                          {kit{meta: gated}, nil, "", gate.ApprovalConsumed},
		"only the description":             {kit{meta: func(m *capability.Meta) { gated(m); m.Description = "Other." }}, nil, "", gate.ApprovalConsumed},
		"only what asks for an approval":   {kit{}, nil, "", gate.ApprovalConsumed},
		"R129 the tool is gone":            {kit{id: "hall.other"}, nil, capability.CodeNotFound, gate.ApprovalApproved},
		"RZ3 not exposed any more":         {kit{meta: func(m *capability.Meta) { gated(m); m.Expose = nil }}, nil, capability.CodeNotFound, gate.ApprovalApproved},
		"R128 a tighter schema":            {kit{meta: gated, in: `{"properties":{"who":{"enum":["dave"]}}}`}, nil, capability.CodeInputInvalid, gate.ApprovalApproved},
		"another schema that accepts":      {kit{meta: gated, in: `{}`}, nil, capability.CodeApprovalStale, gate.ApprovalStale},
		"another output schema":            {kit{meta: gated, out: `{}`}, nil, capability.CodeApprovalStale, gate.ApprovalStale},
		"another side effect":              {kit{meta: func(m *capability.Meta) { gated(m); m.SideEffect = capability.SideEffectExternal }}, nil, capability.CodeApprovalStale, gate.ApprovalStale},
		"another risk":                     {kit{meta: func(m *capability.Meta) { gated(m); m.Risk = capability.RiskHigh }}, nil, capability.CodeApprovalStale, gate.ApprovalStale},
		"another version":                  {kit{meta: func(m *capability.Meta) { gated(m); m.Version = "2" }}, nil, capability.CodeApprovalStale, gate.ApprovalStale},
		"RZ3 policies deny now":            {kit{meta: gated}, []policy.Policy{says("p", deny)}, capability.CodePolicyDenied, gate.ApprovalApproved},
		"RZ2 they deny at execution":       {kit{meta: gated}, []policy.Policy{says("p", deny, policy.PhaseExecution)}, capability.CodePolicyDenied, gate.ApprovalApproved},
		"they hide":                        {kit{meta: gated}, []policy.Policy{says("p", hide)}, capability.CodeNotFound, gate.ApprovalApproved},
		"they fail":                        {kit{meta: gated}, []policy.Policy{says("p", policy.Decision{})}, capability.CodePolicyFailed, gate.ApprovalApproved},
		"they ask for the yes that is had": {kit{meta: gated}, []policy.Policy{says("p", signOff)}, "", gate.ApprovalConsumed},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.approved()
			w.cfg.Policies = tt.policies
			w.rebuild(w.tool(tt.k))
			res := w.resume(id, gate.ResumeOptions{})
			equal(t, "code", code(res), tt.want)
			equal(t, "state", w.approval(id).State, tt.state)
			equal(t, "ran", w.runs() == 1, tt.want == "")
			equal(t, "effect", res.Effect, capability.EffectStatus(""))
			equal(t, "again", w.resume(id, gate.ResumeOptions{}).Error == nil, tt.want == "")
			equal(t, "ran", w.runs() == 1, tt.want == "")
		})
	}
}

// Ruling 10: a sign-off that is not on record is asked for in a new question.
func TestRuling10Supersede(t *testing.T) {
	typed := policy.Decision{Stance: policy.StanceRequireApproval, Reason: "it is late", Type: "manager", Quorum: 2}
	for name, tt := range map[string]struct {
		p    policy.Policy
		meta func(*capability.Meta)
	}{
		"at invocation":    {says("p", typed), gated},
		"at execution":     {says("p", typed, policy.PhaseExecution), gated},
		"the tool's own":   {nil, func(m *capability.Meta) { m.Approval = capability.Approval{Required: true, Type: "manager", Quorum: 2} }},
		"only more people": {nil, quorum(2)},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			old := w.approved()
			if tt.p != nil {
				w.cfg.Policies = []policy.Policy{tt.p}
			}
			w.rebuild(w.tool(kit{meta: tt.meta}))
			w.ledger.fail["close"] = 1 // the process dies between the two steps
			if _, err := w.Resume(t.Context(), old, gate.ResumeOptions{}); !errors.Is(err, errFault) {
				t.Fatalf("error %v", err)
			}
			res := w.resume(old, gate.ResumeOptions{})
			wants(t, res, waits, "")
			equal(t, "old", w.approval(old).State, gate.ApprovalSuperseded)
			equal(t, "event", w.last().Type, gate.EventSuperseded)
			a := w.approval(res.ApprovalID)
			equal(t, "new", a.State, gate.ApprovalPending)
			equal(t, "reasons first", a.Reasons[0], "Approval is required for hall.act.")
			equal(t, "reasons are a union", len(a.Reasons), map[bool]int{true: 2, false: 1}[tt.p != nil])
			equal(t, "quorum", a.Requirements.Quorum, 2)
			equal(t, "input", string(a.Input), `{"who":"carol"}`)
			equal(t, "actor", a.Actor, user(alice))
			wants(t, w.resume(old, gate.ResumeOptions{Key: "other"}), failed, capability.CodeApprovalSuperseded)
			for _, who := range []string{bob, carol} {
				if _, err := w.Decide(t.Context(), gate.Decision{ApprovalID: a.ID, Approver: user(who), Yes: true, Cause: "$2" + who}); err != nil {
					t.Fatal(err)
				}
			}
			wants(t, w.resume(a.ID, gate.ResumeOptions{}), completed, "")
			equal(t, "runs", w.runs(), 1)
		})
	}
}

// What was asked for before stays asked for.
func TestSupersedeIsAUnion(t *testing.T) {
	demand := func(reason, kind string, quorum int) []policy.Policy {
		return []policy.Policy{says("p", policy.Decision{Stance: policy.StanceRequireApproval, Reason: reason, Type: kind, Quorum: quorum})}
	}
	w := one(t, gate.Config{Policies: demand("it is late", "night", 2)}, kit{})
	id := w.approved()
	if _, err := w.vote(id, carol, true); err != nil {
		t.Fatal(err)
	}
	w.cfg.Policies = demand("it is dear", "manager", 0)
	w.rebuild(w.tool(kit{}))
	a := w.approval(w.resume(id, gate.ResumeOptions{}).ApprovalID)
	equal(t, "reasons", a.Reasons, []string{"it is late", "it is dear"})
	equal(t, "requirements", a.Requirements, gate.Requirements{Types: []string{"night", "manager"}, Groups: []string{}, Quorum: 2})
}

// The approval is closed between the look and the start.
func TestALostStart(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(w *world, id string)
		want capability.Code
	}{
		"cancelled": {func(w *world, id string) { _, _ = w.Cancel(w.t.Context(), id, capability.Actor{}, "") }, capability.CodeApprovalCancelled},
		"too late":  {func(w *world, _ string) { w.clock = w.clock.Add(time.Hour) }, capability.CodeApprovalExpired},
		"used":      {func(w *world, id string) { w.resume(id, gate.ResumeOptions{Key: "other"}) }, capability.CodeApprovalConsumed},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			var id string
			done := false
			p := rule{"p", []policy.Phase{policy.PhaseExecution}, func(context.Context, policy.Request) (policy.Decision, error) {
				if !done {
					done = true
					tt.do(w, id)
				}
				return allow, nil
			}}
			w = one(t, gate.Config{Policies: []policy.Policy{p}}, kit{meta: gated})
			id = w.approved()
			wants(t, w.resume(id, gate.ResumeOptions{}), failed, tt.want)
			equal(t, "runs", w.runs() == 1, name == "used")
		})
	}
}

// A fault before the start leaves the approval as it was, and the same
// resumption goes on.
func TestRZ5FaultsBeforeTheStart(t *testing.T) {
	for name, do := range map[string]func(w *world, on bool){
		"the record cannot be read":    func(w *world, on bool) { w.ledger.fail["approval"] = map[bool]int{true: 1}[on] },
		"it cannot be claimed":         func(w *world, on bool) { w.ledger.fail["claim"] = map[bool]int{true: 1}[on] },
		"the start cannot be recorded": func(w *world, on bool) { w.ledger.fail["start"] = map[bool]int{true: 1}[on] },
		"nobody knows who is who":      func(w *world, on bool) { w.people.known = !on },
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated})
			id := w.approved()
			do(w, true)
			if res, err := w.Resume(t.Context(), id, gate.ResumeOptions{}); err == nil {
				t.Fatalf("gave %+v", res)
			}
			do(w, false)
			equal(t, "state", w.approval(id).State, gate.ApprovalApproved)
			equal(t, "runs", w.runs(), 0)
			wants(t, w.resume(id, gate.ResumeOptions{}), completed, "")
		})
	}
	t.Run("there is no context for the call", func(t *testing.T) {
		w := one(t, gate.Config{}, kit{meta: gated})
		id := w.approved()
		w.contexts.give = false
		res := w.resume(id, gate.ResumeOptions{})
		wants(t, res, failed, capability.CodeInternal)
		equal(t, "effect", res.Effect, capability.EffectStatus(""))
		equal(t, "state", w.approval(id).State, gate.ApprovalApproved)
	})
}

// A resumption that died after its start is unknown, under its own key.
func TestAResumptionThatDied(t *testing.T) {
	w := one(t, gate.Config{}, kit{meta: gated})
	id := w.approved()
	w.ledger.late["start"] = 1
	if _, err := w.Resume(t.Context(), id, gate.ResumeOptions{}); err == nil {
		t.Fatal("no error")
	}
	wants(t, w.resume(id, gate.ResumeOptions{Key: "other"}), failed, capability.CodeApprovalConsumed)
	wants(t, w.resume(id, gate.ResumeOptions{}), failed, capability.CodeOutcomeUnknown)
	equal(t, "state", w.approval(id).State, gate.ApprovalConsumed)
}

// RZ1: approved, shown and executed are the same bytes, also at the edge of what
// numbers can be.
func TestRZ1ApprovedIsExecuted(t *testing.T) {
	for _, in := range []string{
		` {"b":"<&>é\u2028","a":1.0} `, `{"n":1e21}`, `{"n":9007199254740992}`, `{"n":0.1}`, `{"n":-0}`, `[]`, `"x"`, `null`, ``,
	} {
		t.Run(in, func(t *testing.T) {
			w := one(t, gate.Config{}, kit{meta: gated, in: `{}`})
			c := call("k")
			c.Input = json.RawMessage(in)
			id := w.invoke(c).ApprovalID
			v, err := w.View(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.vote(id, bob, true); err != nil {
				t.Fatal(err)
			}
			wants(t, w.resume(id, gate.ResumeOptions{}), completed, "")
			equal(t, "executed", w.inputs, []string{string(v.Shown)})
		})
	}
}
