package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

var (
	allow   = policy.Decision{Stance: policy.StanceAllow}
	deny    = policy.Decision{Stance: policy.StanceDeny}
	hide    = policy.Decision{Stance: policy.StanceHide}
	signOff = policy.Decision{Stance: policy.StanceRequireApproval, Reason: "it is late"}
)

func TestR079Precedence(t *testing.T) {
	for i, tt := range []struct {
		a, b   policy.Decision
		status capability.Status
		code   capability.Code
		reason string
	}{
		{allow, allow, completed, "", ""},
		{allow, deny, failed, capability.CodePolicyDenied, "policy-denied"},
		{allow, hide, failed, capability.CodeNotFound, "hidden"},
		{allow, signOff, waits, "", ""},
		{deny, deny, failed, capability.CodePolicyDenied, "policy-denied"},
		{deny, hide, failed, capability.CodePolicyDenied, "policy-denied"},
		{deny, signOff, failed, capability.CodePolicyDenied, "policy-denied"},
		{hide, hide, failed, capability.CodeNotFound, "hidden"},
		{hide, signOff, failed, capability.CodeNotFound, "hidden"},
		{signOff, signOff, waits, "", ""},
	} {
		for _, pair := range [][2]policy.Decision{{tt.a, tt.b}, {tt.b, tt.a}} {
			t.Run(fmt.Sprintf("R%03d %s %s", 79+i, pair[0].Stance, pair[1].Stance), func(t *testing.T) {
				w := one(t, gate.Config{Policies: []policy.Policy{says("a", pair[0]), says("b", pair[1])}}, kit{})
				wants(t, w.invoke(call("k")), tt.status, tt.code)
				if tt.reason == "" {
					return
				}
				ev := w.last()
				equal(t, "event", ev.Type, gate.EventDenied)
				equal(t, "reason", ev.Data["reason"], any(tt.reason))
				equal(t, "stances", ev.Data["policies"], any([]policy.Record{{Policy: "a", Stance: pair[0].Stance, Reason: pair[0].Reason}, {Policy: "b", Stance: pair[1].Stance, Reason: pair[1].Reason}})) // R089
				equal(t, "hash", len(ev.InputHash), 64)
				equal(t, "runs", w.runs(), 0)
			})
		}
	}
}

func TestR091WhatADenialSays(t *testing.T) {
	for name, tt := range map[string]struct {
		d    policy.Decision
		want string
	}{
		"R091 its own words": {policy.Decision{Stance: policy.StanceDeny, Message: "Not on Sundays."}, "Not on Sundays."},
		"R092 none":          {deny, "The operation was denied by policy."},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{Policies: []policy.Policy{says("sunday", tt.d)}}, kit{})
			f := w.invoke(call("k")).Error.Face()
			equal(t, "face", f, capability.Face{Code: capability.CodePolicyDenied, Message: tt.want})
		})
	}
}

func TestR093WhatAPolicySees(t *testing.T) {
	var seen policy.Request
	spy := rule{"spy", nil, func(_ context.Context, r policy.Request) (policy.Decision, error) {
		seen = r
		return allow, nil
	}}
	w := one(t, gate.Config{Policies: []policy.Policy{spy}}, kit{meta: func(m *capability.Meta) { m.Tags = []string{"hall"} }})
	c := call("k")
	c.Input = json.RawMessage(` {"who" : "carol"} `)
	w.invoke(c)
	equal(t, "phase", seen.Phase, policy.PhaseInvocation)
	equal(t, "capability", seen.CapabilityID, "hall.act")
	equal(t, "tags", seen.Meta.Tags, []string{"hall"})
	equal(t, "surface", seen.Surface, capability.SurfaceCommand)
	equal(t, "actor", seen.Actor, user(alice))
	equal(t, "input", string(seen.Input), `{"who":"carol"}`)
}

// RZ7: what a policy does to what it is shown changes nothing.
func TestRZ7PoliciesCannotChangeAnything(t *testing.T) {
	vandal := rule{"vandal", []policy.Phase{policy.PhaseInvocation, policy.PhaseExecution}, func(_ context.Context, r policy.Request) (policy.Decision, error) {
		clear(r.Input)
		r.Meta.Expose[0], r.Meta.Tags[0], r.Actor.Attributes["power"] = "moon", "x", "100"
		return allow, nil
	}}
	w := one(t, gate.Config{Policies: []policy.Policy{vandal}}, kit{in: `{}`, meta: func(m *capability.Meta) { m.Tags = []string{"hall"} }})
	for _, k := range []string{"1", "2"} {
		c := call(k)
		c.Actor.Attributes = map[string]string{"power": "0"}
		wants(t, w.invoke(c), completed, "")
		equal(t, "attributes", c.Actor.Attributes["power"], "0")
	}
	equal(t, "inputs", w.inputs, []string{`{"who":"carol"}`, `{"who":"carol"}`})
}

func TestR095PoliciesFailClosed(t *testing.T) {
	fails := func(f func(ctx context.Context) (policy.Decision, error)) policy.Policy {
		return rule{"bad", nil, func(ctx context.Context, _ policy.Request) (policy.Decision, error) { return f(ctx) }}
	}
	for name, bad := range map[string]policy.Policy{
		"R095 an error":            fails(func(context.Context) (policy.Decision, error) { return allow, errFault }),
		"R095 a panic":             fails(func(context.Context) (policy.Decision, error) { panic("hunter2") }),
		"R096 too slow":            fails(func(ctx context.Context) (policy.Decision, error) { <-ctx.Done(); return allow, nil }),
		"R096 deaf":                fails(func(context.Context) (policy.Decision, error) { time.Sleep(time.Hour); return allow, nil }),
		"R097 nothing":             fails(func(context.Context) (policy.Decision, error) { return policy.Decision{}, nil }),
		"R097 nonsense":            fails(func(context.Context) (policy.Decision, error) { return policy.Decision{Stance: "perhaps"}, nil }),
		"the inner word for error": fails(func(context.Context) (policy.Decision, error) { return policy.Decision{Stance: "error"}, nil }),
		"R103 no reason": fails(func(context.Context) (policy.Decision, error) {
			return policy.Decision{Stance: policy.StanceRequireApproval}, nil
		}),
		"RZ13 a negative window": fails(func(context.Context) (policy.Decision, error) {
			return policy.Decision{Stance: policy.StanceRequireApproval, Reason: "r", ExpiresIn: -1}, nil
		}),
		"a negative quorum": fails(func(context.Context) (policy.Decision, error) {
			return policy.Decision{Stance: policy.StanceRequireApproval, Reason: "r", Quorum: -1}, nil
		}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := one(t, gate.Config{Now: time.Now, Policies: []policy.Policy{bad, says("good", allow), says("strict", deny)}}, kit{})
				res := w.invoke(call("k"))
				wants(t, res, failed, capability.CodePolicyFailed)
				equal(t, "face", res.Error.Face(), capability.Face{Code: capability.CodeInternal, Message: "The operation failed."})
				ev := w.last()
				equal(t, "reason", ev.Data["reason"], any("policy-failed"))
				equal(t, "who failed", ev.Data["policies"].([]any)[0], any(map[string]any{"policy": "bad", "type": "error"}))
				equal(t, "all are on record", len(ev.Data["policies"].([]any)), 3)
				equal(t, "runs", w.runs(), 0)
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

func TestR099DemandsMerge(t *testing.T) {
	p := func(name, kind string, d time.Duration, quorum int) policy.Policy {
		return says(name, policy.Decision{Stance: policy.StanceRequireApproval, Reason: "because of " + name, Type: kind, ExpiresIn: d, Quorum: quorum})
	}
	static := func(kind string, d time.Duration, quorum int) func(*capability.Meta) {
		return func(m *capability.Meta) {
			m.Approval = capability.Approval{Required: true, Type: kind, ExpiresIn: d, Quorum: quorum}
		}
	}
	own := "Approval is required for hall.act."
	for name, tt := range map[string]struct {
		policies []policy.Policy
		meta     func(*capability.Meta)
		reasons  []string
		types    []string
		quorum   int
		window   time.Duration
	}{
		"R099 two policies": {[]policy.Policy{p("a", "x", time.Minute, 0), p("b", "y", 30*time.Second, 0)}, nil, []string{"because of a", "because of b"}, []string{"x", "y"}, 1, 30 * time.Second},
		"R107 the tool":     {nil, static("manager", time.Minute, 0), []string{own}, []string{"manager"}, 1, time.Minute},
		"R108 both": {
			[]policy.Policy{p("a", "manager", 5*time.Second, 2)},
			static("manager", time.Second, 0),
			[]string{own, "because of a"},
			[]string{"manager"},
			2, 5 * time.Second,
		},
		"the default window": {nil, static("", 0, 3), []string{own}, []string{}, 3, 15 * time.Minute},
		"never":              {nil, static("", gate.Never, 0), []string{own}, []string{}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := one(t, gate.Config{Policies: tt.policies}, kit{meta: tt.meta})
			a := w.approval(w.pending())
			equal(t, "reasons", a.Reasons, tt.reasons)
			equal(t, "types", a.Requirements.Types, tt.types)
			equal(t, "quorum", a.Requirements.Quorum, tt.quorum)
			if tt.window == 0 {
				equal(t, "deadline", a.ExpiresAt, time.Time{})
			} else {
				equal(t, "window", a.ExpiresAt.Sub(a.RequestedAt), tt.window)
			}
			equal(t, "questions", len(w.events(gate.EventFilter{Types: []gate.EventType{gate.EventApprovalRequested}})), 1)
		})
	}
}

func TestR100Phases(t *testing.T) {
	var asked []policy.Phase
	spy := func(d policy.Decision, phases ...policy.Phase) policy.Policy {
		return rule{"spy", phases, func(_ context.Context, r policy.Request) (policy.Decision, error) {
			asked = append(asked, r.Phase)
			return d, nil
		}}
	}
	both := []policy.Phase{policy.PhaseInvocation, policy.PhaseExecution}
	for name, tt := range map[string]struct {
		p      policy.Policy
		status capability.Status
		asked  []policy.Phase
	}{
		"R100 no phase named":         {spy(allow), completed, []policy.Phase{policy.PhaseInvocation}},
		"both":                        {spy(allow, both...), completed, both},
		"R104 only at execution":      {spy(signOff, policy.PhaseExecution), waits, []policy.Phase{policy.PhaseExecution}},
		"R105 a denial in a listing":  {spy(deny, policy.PhaseDiscovery), completed, nil},
		"R105 a hiding in a listing":  {spy(hide, policy.PhaseDiscovery), completed, nil},
		"denied: the rest is skipped": {spy(deny, both...), failed, both[:1]},
	} {
		t.Run(name, func(t *testing.T) {
			asked = nil
			w := one(t, gate.Config{Policies: []policy.Policy{tt.p}}, kit{})
			equal(t, "status", w.invoke(call("k")).Status, tt.status)
			equal(t, "asked", asked, tt.asked)
		})
	}
}

func TestR101DeniedAtExecution(t *testing.T) {
	p := rule{"late", []policy.Phase{policy.PhaseInvocation, policy.PhaseExecution}, func(_ context.Context, r policy.Request) (policy.Decision, error) {
		if r.Phase == policy.PhaseExecution {
			return deny, nil
		}
		return allow, nil
	}}
	w := one(t, gate.Config{Policies: []policy.Policy{p}}, kit{})
	wants(t, w.invoke(call("k")), failed, capability.CodePolicyDenied)
	ev := w.last()
	equal(t, "event", ev.Type, gate.EventFailed)
	equal(t, "stances", ev.Data["policies"], any([]policy.Record{{Policy: "late", Stance: policy.StanceAllow}, {Policy: "late", Stance: policy.StanceDeny}}))
}

func TestR104ExecutionOnlyDemand(t *testing.T) {
	w := one(t, gate.Config{Policies: []policy.Policy{says("late", signOff, policy.PhaseExecution)}}, kit{})
	wants(t, w.resume(w.approved(), gate.ResumeOptions{}), completed, "")
	equal(t, "runs", w.runs(), 1)
}

func TestR161R163R179Describe(t *testing.T) {
	p := rule{"p", []policy.Phase{policy.PhaseDiscovery}, func(_ context.Context, r policy.Request) (policy.Decision, error) {
		if r.Input != nil {
			t.Error("a listing shows input")
		}
		switch r.CapabilityID {
		case "hall.hidden":
			return hide, nil
		case "hall.denied":
			return deny, nil
		case "hall.broken":
			return allow, errors.New("broken")
		case "hall.asks":
			return signOff, nil
		}
		return allow, nil
	}}
	w := newWorld(t, gate.Config{Policies: []policy.Policy{p}})
	w.rebuild(
		w.tool(kit{id: "hall.open"}), w.tool(kit{id: "hall.hidden"}), w.tool(kit{id: "hall.denied"}), w.tool(kit{id: "hall.broken"}),
		w.tool(kit{id: "hall.asks"}), w.tool(kit{id: "hall.gated", meta: gated}),
		w.tool(kit{id: "hall.elsewhere", meta: func(m *capability.Meta) { m.Expose = nil }}),
	)
	for range 2 {
		list, err := w.Describe(t.Context(), capability.SurfaceCommand, user(alice))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range list {
			got = append(got, fmt.Sprintf("%s %t", d.ID, d.RequiresApproval))
			equal(t, "schema", string(d.InputSchema), strict)
			clear(d.InputSchema) // R179
		}
		equal(t, "listed", got, []string{"hall.open false", "hall.asks true", "hall.gated true"})
	}
	t.Run("R171 without an actor", func(t *testing.T) {
		if _, err := w.Describe(t.Context(), capability.SurfaceCommand, capability.Actor{}); capability.CodeOf(err) != capability.CodeUnauthenticated {
			t.Error(err)
		}
	})
}
