package gate_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

// listing is a world of tools, each asked about by p.
func listing(t *testing.T, cfg gate.Config, p func(ctx context.Context, id string) (policy.Decision, error), ids ...string) *world {
	t.Helper()
	cfg.Now = time.Now
	cfg.Policies = []policy.Policy{rule{"p", []policy.Phase{policy.PhaseDiscovery}, func(ctx context.Context, r policy.Request) (policy.Decision, error) {
		return p(ctx, r.CapabilityID)
	}}}
	w := newWorld(t, cfg)
	var caps []*capability.Capability
	for _, id := range ids {
		id, tags, _ := strings.Cut(id, " ")
		caps = append(caps, w.tool(kit{id: id, meta: func(m *capability.Meta) { m.Tags = strings.Fields(tags) }}))
	}
	w.rebuild(caps...)
	return w
}

func listed(t *testing.T, w *world, s gate.Scope) []string {
	t.Helper()
	list, err := w.DescribeScope(t.Context(), capability.SurfaceCommand, user(alice), s)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{}
	for _, d := range list {
		ids = append(ids, d.ID)
	}
	return ids
}

func TestR165Scope(t *testing.T) {
	all := []string{"a", "b x", "c x y", "d y", "e z"}
	none := []string{}
	for name, tt := range map[string]struct {
		scope gate.Scope
		want  []string
	}{
		"R167 no scope":           {gate.Scope{}, []string{"a", "b", "c", "d", "e"}},
		"R165 a tag":              {gate.Scope{Tags: []string{"x"}}, []string{"b", "c"}},
		"R165 any of two":         {gate.Scope{Tags: []string{"y", "x"}}, []string{"b", "c", "d"}},
		"ids":                     {gate.Scope{IDs: []string{"d", "a"}}, []string{"a", "d"}},
		"the union":               {gate.Scope{IDs: []string{"a"}, Tags: []string{"z"}}, []string{"a", "e"}},
		"R167 no tags":            {gate.Scope{Tags: none}, none},
		"R167 no ids":             {gate.Scope{IDs: none}, none},
		"R167 unknown":            {gate.Scope{Tags: []string{"q"}, IDs: []string{"q"}}, none},
		"no tags, but an id":      {gate.Scope{Tags: none, IDs: []string{"a"}}, []string{"a"}},
		"an empty tag is no tool": {gate.Scope{Tags: []string{""}}, none},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			w := listing(t, gate.Config{}, func(context.Context, string) (policy.Decision, error) {
				asked.Add(1)
				return allow, nil
			}, all...)
			equal(t, "listed", listed(t, w, tt.scope), tt.want)
			t.Run("R168", func(t *testing.T) { equal(t, "asked about", int(asked.Load()), len(tt.want)) })
			c := call("k")
			c.CapabilityID = "a"
			t.Run("R169", func(t *testing.T) { wants(t, w.invoke(c), completed, "") })
		})
	}
}

func TestR175Concurrency(t *testing.T) {
	for _, tt := range []struct{ set, want int }{{0, 16}, {1, 1}, {3, 3}} {
		t.Run(fmt.Sprint(tt.set), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var now, most atomic.Int32
				var ids []string
				for i := range 40 {
					ids = append(ids, fmt.Sprintf("t%02d", i))
				}
				w := listing(t, gate.Config{PolicyConcurrency: tt.set}, func(context.Context, string) (policy.Decision, error) {
					n := now.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(100 * time.Millisecond)
					now.Add(-1)
					return allow, nil
				}, ids...)
				equal(t, "R176 order", listed(t, w, gate.Scope{}), ids)
				equal(t, "at once", int(most.Load()), tt.want)
			})
		})
	}
}

func TestR176R177TheFirstIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := listing(t, gate.Config{}, func(_ context.Context, id string) (policy.Decision, error) {
			switch id {
			case "a":
				time.Sleep(time.Second)
			case "b":
				return allow, errFault // R177
			case "c":
				time.Sleep(time.Hour) // its own time is over before
			}
			return allow, nil
		}, "a", "b", "c", "d")
		equal(t, "listed", listed(t, w, gate.Scope{}), []string{"a", "d"})
		time.Sleep(2 * time.Hour)
	})
}

func TestTheBudgetFailsLoudly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := listing(t, gate.Config{DiscoveryBudget: 3 * time.Second, PolicyConcurrency: 1}, func(context.Context, string) (policy.Decision, error) {
			time.Sleep(2 * time.Second)
			return allow, nil
		}, "a", "b", "c")
		begun := time.Now()
		list, err := w.Describe(t.Context(), capability.SurfaceCommand, user(alice))
		e, ok := errors.AsType[*capability.Error](err)
		if !ok || e.Code != capability.CodeTimeout || e.Stage != capability.StageDiscovery || list != nil {
			t.Errorf("%v %v", list, err)
		}
		equal(t, "took", time.Since(begun), 3*time.Second)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := w.Describe(ctx, capability.SurfaceCommand, user(alice)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller's own end: %v", err)
		}
		time.Sleep(time.Minute)
	})
}

func TestToolPolicies(t *testing.T) {
	cfg := gate.Config{
		Policies:     []policy.Policy{says("house", allow)},
		ToolPolicies: map[string][]policy.Policy{"hall.act": {says("own", deny, policy.PhaseInvocation, policy.PhaseDiscovery)}},
	}
	w := newWorld(t, gate.Config{})
	w.cfg = cfg
	w.rebuild(w.tool(kit{}), w.tool(kit{id: "hall.other"}))
	wants(t, w.invoke(call("k")), failed, capability.CodePolicyDenied)
	equal(t, "stances", w.last().Data["policies"], any([]policy.Record{{Policy: "house", Stance: policy.StanceAllow}, {Policy: "own", Stance: policy.StanceDeny}}))
	c := call("other")
	c.CapabilityID = "hall.other"
	wants(t, w.invoke(c), completed, "")
	equal(t, "listed", listed(t, w, gate.Scope{}), []string{"hall.other"})
	w.cfg.ToolPolicies = map[string][]policy.Policy{"hall.none": {nil}}
	if _, err := gate.New(w.cfg); err == nil || !strings.Contains(err.Error(), "hall.none") || !strings.Contains(err.Error(), "no name") {
		t.Errorf("error %v", err)
	}
}

// A policy that ignores its context holds up its own tool, for its own time.
func TestR177ADeafPolicyIsLeftBehind(t *testing.T) {
	for name, deaf := range map[string]func(){
		"asleep": func() { time.Sleep(time.Hour) },
		"gone":   runtime.Goexit,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := listing(t, gate.Config{PolicyTimeout: time.Second, PolicyConcurrency: 1}, func(_ context.Context, id string) (policy.Decision, error) {
					if id == "b" || id == "d" {
						deaf()
					}
					return allow, nil
				}, "a", "b", "c", "d", "e")
				begun := time.Now()
				equal(t, "listed", listed(t, w, gate.Scope{}), []string{"a", "c", "e"})
				equal(t, "took", time.Since(begun), 2*time.Second)
				time.Sleep(2 * time.Hour) // a late answer changes nothing
				equal(t, "listed", listed(t, w, gate.Scope{IDs: []string{"a", "e"}}), []string{"a", "e"})
			})
		})
	}
}
