package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

func registry(t *testing.T, caps ...*capability.Capability) *capability.Registry {
	t.Helper()
	r, err := capability.NewRegistry(caps...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func govern(t *testing.T, r *capability.Registry, ps ...policy.Policy) *gate.Governance {
	t.Helper()
	v, err := gate.Govern(r, ps, nil)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// over makes a gate of v that shares w's ledger and people.
func (w *world) over(v *gate.Governance, change func(*gate.Config)) *gate.Gate {
	w.t.Helper()
	cfg := w.cfg
	cfg.Registry, cfg.Policies, cfg.ToolPolicies, cfg.Governance = nil, nil, nil, v
	if change != nil {
		change(&cfg)
	}
	g, err := gate.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func TestR023R026Manifest(t *testing.T) {
	a := says("a", allow)
	b := says("b", allow, policy.PhaseDiscovery, policy.PhaseInvocation)
	both, err := policy.Compose("", b, a)
	if err != nil {
		t.Fatal(err)
	}
	v := govern(t, registry(t), a, both)
	in := policy.PhaseInvocation
	want := []gate.Stage{
		{Name: "a", Phases: []policy.Phase{in}},
		{Name: "b", Phases: []policy.Phase{policy.PhaseDiscovery, in}},
		{Name: "a", Phases: []policy.Phase{in}},
	}
	equal(t, "manifest", v.Manifest(), want)
	// R025: what it gives out is a copy.
	m := v.Manifest()
	m[1].Name, m[1].Phases[0] = "x", policy.PhaseExecution
	equal(t, "manifest", v.Manifest(), want)
	if m := govern(t, registry(t)).Manifest(); m == nil || len(m) != 0 {
		t.Errorf("the manifest of no policies is %v", m)
	}
}

func TestR025PoliciesAreFrozen(t *testing.T) {
	var w *world
	w = newWorld(t, gate.Config{}, makeTool(func() *world { return w }, kit{}))
	ps := []policy.Policy{says("a", allow)}
	byTool := map[string][]policy.Policy{"hall.act": {says("b", allow)}}
	v, err := gate.Govern(w.cfg.Registry, ps, byTool)
	if err != nil {
		t.Fatal(err)
	}
	ps[0], byTool["hall.act"][0] = says("a", deny), says("b", deny)
	res, err := w.over(v, nil).Invoke(t.Context(), call("k"))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, res, completed, "")
}

func TestR027WhatIsNoGovernance(t *testing.T) {
	if _, err := gate.Govern(nil, nil, nil); err == nil {
		t.Error("no registry was taken")
	}
	if _, err := gate.Govern(registry(t), []policy.Policy{nil}, nil); err == nil {
		t.Error("a nil policy was taken")
	}
	w := newWorld(t, gate.Config{})
	w.cfg.Governance = govern(t, registry(t))
	if _, err := gate.New(w.cfg); err == nil {
		t.Error("a governance and a registry were taken")
	}
	if w.Swap(nil) == nil {
		t.Error("no governance was swapped in")
	}
}

func TestR029TwoGatesOverOneGovernance(t *testing.T) {
	w := newWorld(t, gate.Config{})
	v := govern(t, registry(t), says("a", deny))
	for range 2 {
		if w.over(v, nil).Governance() != v {
			t.Error("a gate has made its own")
		}
	}
}

// A call works on what it began with, the next on what is in force then.
func TestSwap(t *testing.T) {
	var w *world
	entered, release := make(chan struct{}), make(chan struct{})
	slow := rule{"slow", nil, func(context.Context, policy.Request) (policy.Decision, error) {
		close(entered)
		<-release
		return allow, nil
	}}
	tool := makeTool(func() *world { return w }, kit{})
	w = newWorld(t, gate.Config{Policies: []policy.Policy{slow}}, tool)
	first := make(chan capability.Result, 1)
	go func() {
		res, err := w.Invoke(t.Context(), call("first"))
		if err != nil {
			t.Error(err)
		}
		first <- res
	}()
	<-entered
	if err := w.Swap(govern(t, registry(t))); err != nil {
		t.Fatal(err)
	}
	close(release)
	wants(t, <-first, completed, "")
	wants(t, w.invoke(call("second")), failed, capability.CodeNotFound)

	next, err := w.Governance().With(registry(t, tool), map[string][]policy.Policy{"hall.act": {says("b", deny)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Scope().Swap(next); err != nil {
		t.Fatal(err)
	}
	wants(t, w.invoke(call("third")), failed, capability.CodePolicyDenied)
	equal(t, "ids", next.IDs(), []string{"hall.act"})
}

// Every policy still speaks after its tools were exchanged.
func TestWithKeepsThePolicies(t *testing.T) {
	var w *world
	tool := makeTool(func() *world { return w }, kit{})
	w = newWorld(t, gate.Config{Policies: []policy.Policy{says("a", deny)}}, tool)
	for name, r := range map[string]*capability.Registry{
		"the same tool":   registry(t, tool),
		"an equal tool":   registry(t, makeTool(func() *world { return w }, kit{})),
		"one tool beside": registry(t, tool, makeTool(func() *world { return w }, kit{id: "b"})),
	} {
		v, err := w.Governance().With(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.over(v, nil).Invoke(t.Context(), call(name))
		if err != nil {
			t.Fatal(err)
		}
		wants(t, res, failed, capability.CodePolicyDenied)
	}
}

func TestR022ToolNames(t *testing.T) {
	w := newWorld(t, gate.Config{})
	tool := w.tool(kit{id: "orders.refund", meta: func(m *capability.Meta) {
		m.Expose = append(m.Expose, capability.SurfaceAgent, capability.SurfaceMCP)
		m.Names = map[capability.Surface]string{capability.SurfaceMCP: "refund"}
		m.Annotations = map[string]any{"destructiveHint": true}
	}})
	w.rebuild(tool)
	list, err := w.Describe(t.Context(), capability.SurfaceMCP, user(alice))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "name", list[0].Name, "refund")
	equal(t, "annotations", list[0].Annotations, map[string]any{"destructiveHint": true})
	equal(t, "default", w.Governance().ToolName(capability.SurfaceAgent, "orders.refund"), "orders_refund")
	equal(t, "not exposed", w.Governance().ToolName(capability.SurfaceHTTP, "orders.refund"), "")
}

func TestR030Warnings(t *testing.T) {
	quiet := func(c *gate.Config) {
		c.VolatileLedger, c.Audit.LedgerOnly = true, true
		c.Keys = gate.Keys{Signing: gate.KeyPresent, Secrets: gate.KeyDeclined}
	}
	agent := func(m *capability.Meta) { m.Expose = []capability.Surface{capability.SurfaceAgent} }
	handler := func(context.Context, gate.Approval) (*gate.Decision, error) { return nil, nil }
	tools := func(n int, also ...func(*capability.Meta)) []*capability.Capability {
		var out []*capability.Capability
		for i := range n {
			out = append(out, makeTool(func() *world { return nil }, kit{id: fmt.Sprintf("t%d", i), meta: func(m *capability.Meta) {
				for _, f := range also {
					f(m)
				}
			}}))
		}
		return out
	}
	for name, tt := range map[string]struct {
		tools    []*capability.Capability
		policies []policy.Policy
		change   func(*gate.Config)
		want     []string // what each warning says, in order
	}{
		"R030 gated, in memory":        {tools(1, gated), nil, func(c *gate.Config) { c.VolatileLedger = false }, []string{"they gate t0"}},
		"R030 a handler":               {tools(1, gated), nil, func(c *gate.Config) { c.VolatileLedger, c.Approvals.Handler = false, handler }, nil},
		"R030 three, then a number":    {tools(5, gated), nil, func(c *gate.Config) { c.VolatileLedger = false }, []string{"t0, t1, t2 (+2 more)"}},
		"R031 a policy may ask":        {tools(1, agent), []policy.Policy{says("a", allow)}, func(c *gate.Config) { c.VolatileLedger = false }, []string{"a policy may ask"}},
		"R031 no policies":             {tools(1, agent), nil, func(c *gate.Config) { c.VolatileLedger = false }, nil},
		"R031 only reads":              {tools(1, agent, read), []policy.Policy{says("a", allow)}, func(c *gate.Config) { c.VolatileLedger = false }, nil},
		"a write for models, no sink":  {tools(4, agent), nil, func(c *gate.Config) { c.Audit.LedgerOnly = false }, []string{"no audit sink: t0, t1, t2 (+1 more)"}},
		"a write for models, a sink":   {tools(4, agent), nil, func(c *gate.Config) { c.Audit = gate.Audit{Sinks: []gate.Sink{&sink{}}} }, nil},
		"a read for models, no sink":   {tools(4, agent, read), nil, func(c *gate.Config) { c.Audit.LedgerOnly = false }, nil},
		"a write for people, no sink":  {tools(1), nil, func(c *gate.Config) { c.Audit.LedgerOnly = false }, nil},
		"no keys":                      {nil, nil, func(c *gate.Config) { c.Keys = gate.Keys{} }, []string{"no signing key", "no secrets key"}},
		"R033 everything is explicit":  {tools(9, gated, agent), []policy.Policy{says("a", allow)}, nil, nil},
		"a ledger that is not in RAM":  {tools(1, gated), nil, func(c *gate.Config) { c.VolatileLedger, c.Ledger = false, &faulty{} }, nil},
		"R031 only one of the first 2": {tools(2, gated, agent), []policy.Policy{says("a", allow)}, func(c *gate.Config) { c.VolatileLedger = false }, []string{"they gate t0, t1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, gate.Config{})
			w.cfg.Ledger = w.ledger.Ledger
			got := w.over(govern(t, registry(t, tt.tools...), tt.policies...), func(c *gate.Config) {
				quiet(c)
				if tt.change != nil {
					tt.change(c)
				}
			}).Warnings()
			equal(t, "warnings", len(got), len(tt.want))
			for i, want := range tt.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("%q does not say %q", got[i], want)
				}
			}
		})
	}
}

func TestR050Before(t *testing.T) {
	refuse := capability.Refuse("You are not a member.")
	for name, tt := range map[string]struct {
		before func(ctx context.Context, rt *capability.Context, in json.RawMessage) error
		status capability.Status
		code   capability.Code
		stage  capability.Stage
		text   string
		runs   int
		effect capability.EffectStatus
	}{
		"R050 FORBIDDEN is kept": {
			func(context.Context, *capability.Context, json.RawMessage) error { return refuse },
			failed, capability.CodeForbidden, capability.StageAuthorization, "You are not a member.", 0, "",
		},
		"R053 UNAUTHENTICATED is kept": {
			func(context.Context, *capability.Context, json.RawMessage) error {
				return capability.Fail(capability.CodeUnauthenticated)
			},
			failed, capability.CodeUnauthenticated, capability.StageAuthentication, "Authentication is required.", 0, capability.EffectUnknown,
		},
		"anything else is hidden": {
			func(context.Context, *capability.Context, json.RawMessage) error { return errFault },
			failed, capability.CodeExecutionFailed, capability.StageExecution, "The operation failed.", 0, capability.EffectUnknown,
		},
		"a panic is hidden": {
			func(context.Context, *capability.Context, json.RawMessage) error { panic("hunter2") },
			failed, capability.CodeExecutionFailed, capability.StageExecution, "The operation failed.", 0, capability.EffectUnknown,
		},
		"R050 in order": {
			func(_ context.Context, rt *capability.Context, in json.RawMessage) error {
				if rt.Call.Actor.ID != alice || string(in) != `{"who":"carol"}` {
					return errFault
				}
				clear(in)
				return nil
			},
			completed, "", "", "", 1, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var w *world
			tool := makeTool(func() *world { return w }, kit{})
			tool.Before = tt.before
			w = newWorld(t, gate.Config{}, tool)
			res := w.invoke(call("k"))
			wants(t, res, tt.status, tt.code)
			if res.Error != nil {
				equal(t, "stage", res.Error.Stage, tt.stage)
				equal(t, "text", res.Error.Public, tt.text)
			}
			equal(t, "runs", w.runs(), tt.runs)
			equal(t, "effect", res.Effect, tt.effect)
		})
	}
}

func TestR051DeclaredErrors(t *testing.T) {
	w := one(t, gate.Config{}, kit{run: func(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
		return nil, fmt.Errorf("refund: %w", capability.Failed("More than the order's total.", true))
	}})
	res := w.invoke(call("k"))
	wants(t, res, failed, capability.CodeExecutionFailed)
	equal(t, "face", res.Error.Face(), capability.Face{Code: capability.CodeExecutionFailed, Message: "More than the order's total."})
	if _, err := res.Unwrap(); capability.CodeOf(err) != capability.CodeExecutionFailed {
		t.Errorf("unwrapped: %v", err)
	}
}
