package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// Governance is what calls are held to: the tools and the policies, checked,
// compiled and frozen. Make it with [Govern]. Gates that share one cannot
// disagree. It is immutable, and hands out neither tools nor policies; a house
// whose tools change makes a new one ([Governance.With]) and gives it to its
// gates ([Gate.Swap]).
type Governance struct {
	policies []policy.Policy
	byTool   map[string][]policy.Policy
	manifest []Stage
	tools    map[string]*tool
	order    []*tool
	exposed  map[capability.Surface][]*tool
}

// Stage is a policy's identity: its name and when it is asked.
type Stage struct {
	Name   string         `json:"name"`
	Phases []policy.Phase `json:"phases"`
}

// tool is a capability with what was worked out about it.
type tool struct {
	*capability.Capability // a copy: what its owner changes later changes nothing here
	source                 *capability.Capability
	in, out                *jsonschema.Schema
	fill                   *filler         // the defaults of its input; nil: none
	policies               []policy.Policy // everybody's, then its own
	speaks                 [3]bool         // by phase: whether any of them has a say
	class                  map[string]any  // what the requested event says of it; never changed
	own                    []policy.Policy // its own alone, to tell whether it can be kept
	revision               string
}

// has reports whether any policy has a say in ph.
func (t *tool) has(ph policy.Phase) bool { return t.speaks[phaseIndex(ph)] }

func phaseIndex(ph policy.Phase) int {
	switch ph {
	case policy.PhaseDiscovery:
		return 0
	case policy.PhaseInvocation:
		return 1
	case policy.PhaseExecution:
	}
	return 2
}

// Govern compiles the tools and freezes them with the policies, which are asked
// in order, before those of byTool for the capability of that id. All faults come
// back in one error. It does no I/O.
func Govern(r *capability.Registry, policies []policy.Policy, byTool map[string][]policy.Policy) (*Governance, error) {
	return govern(r, policies, byTool, nil)
}

// With gives a governance of other tools under the same policies, except that
// byTool replaces those of single tools. What did not change is not compiled
// again. v is unchanged.
func (v *Governance) With(r *capability.Registry, byTool map[string][]policy.Policy) (*Governance, error) {
	return govern(r, v.policies, byTool, v)
}

func govern(r *capability.Registry, policies []policy.Policy, byTool map[string][]policy.Policy, before *Governance) (*Governance, error) {
	if err := errors.Join(policyFaults(r, policies, byTool)...); err != nil {
		return nil, fmt.Errorf("govern: %w", err)
	}
	v := &Governance{
		policies: slices.Clone(policies), byTool: make(map[string][]policy.Policy, len(byTool)), manifest: manifestOf(policies),
		tools: make(map[string]*tool), exposed: make(map[capability.Surface][]*tool),
	}
	for id, ps := range byTool {
		v.byTool[id] = slices.Clone(ps)
	}
	var faults []error
	for _, c := range r.All() {
		t, err := v.prepare(c, before)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		v.tools[c.ID] = t
		v.order = append(v.order, t)
		for _, s := range capability.Surfaces() {
			if c.Meta.Exposed(s) {
				v.exposed[s] = append(v.exposed[s], t)
			}
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("govern: %w", errors.Join(faults...))
	}
	return v, nil
}

// Manifest lists everybody's policies in the order they are asked, composites
// flattened. It is what is configured, not what it leads to.
func (v *Governance) Manifest() []Stage {
	out := slices.Clone(v.manifest)
	for i := range out {
		out[i].Phases = slices.Clone(out[i].Phases)
	}
	return out
}

// IDs lists the tools in registration order.
func (v *Governance) IDs() []string {
	out := make([]string, len(v.order))
	for i, t := range v.order {
		out[i] = t.ID
	}
	return out
}

// ToolName is what the tool id is called on s; empty if it is not exposed there.
func (v *Governance) ToolName(s capability.Surface, id string) string {
	t, ok := v.tools[id]
	if !ok || !t.Meta.Exposed(s) {
		return ""
	}
	return t.Name(s)
}

func manifestOf(policies []policy.Policy) []Stage {
	out := []Stage{}
	for _, p := range policy.Flatten(policies) {
		phases := slices.Clone(p.Phases())
		if len(phases) == 0 {
			phases = []policy.Phase{policy.PhaseInvocation}
		}
		out = append(out, Stage{p.Name(), phases})
	}
	return out
}

func policyFaults(r *capability.Registry, policies []policy.Policy, byTool map[string][]policy.Policy) []error {
	var faults []error
	if r == nil {
		faults = append(faults, errors.New("a registry is required"))
	}
	all := slices.Clone(policies)
	for _, id := range slices.Sorted(maps.Keys(byTool)) {
		all = append(all, byTool[id]...)
		if r == nil {
			continue
		}
		if _, err := r.Get(id); err != nil {
			faults = append(faults, fmt.Errorf("policies for %q: %w", id, err))
		}
	}
	for _, p := range all {
		if p == nil || strings.TrimSpace(p.Name()) == "" {
			faults = append(faults, errors.New("a policy has no name"))
			continue
		}
		for _, ph := range p.Phases() {
			if !ph.Valid() {
				faults = append(faults, fmt.Errorf("policy %q names an unknown phase %q", p.Name(), ph))
			}
		}
	}
	return faults
}

func (v *Governance) prepare(c *capability.Capability, before *Governance) (*tool, error) {
	own := v.byTool[c.ID]
	if before != nil {
		if old, ok := before.tools[c.ID]; ok && old.source == c && len(old.own) == 0 && len(own) == 0 {
			return old, nil
		}
	}
	source := c
	c = c.Clone()
	in, err := compile(c.ID, c.InputSchema)
	if err != nil {
		return nil, err
	}
	out, err := compile(c.ID, c.OutputSchema)
	if err != nil {
		return nil, err
	}
	policies := slices.Concat(v.policies, own)
	rev, err := revisionOf(c, policies)
	if err != nil {
		return nil, err
	}
	t := &tool{
		Capability: c, source: source, in: in, out: out, fill: fillerOf(c.InputSchema), policies: policies, own: own, revision: rev,
		class: map[string]any{"side_effect": c.Meta.SideEffect, "risk": c.Meta.Risk},
	}
	for _, ph := range []policy.Phase{policy.PhaseDiscovery, policy.PhaseInvocation, policy.PhaseExecution} {
		t.speaks[phaseIndex(ph)] = policy.Speaks(policies, ph)
	}
	return t, nil
}

// revisionOf is the contract revision: two hashes joined by a dot. The first
// covers what makes an old yes meaningless when it changes (schemas, side
// effect, risk, handler version), the second also what is re-checked anyway
// (exposure, gate, policies). The description is in neither.
func revisionOf(c *capability.Capability, policies []policy.Policy) (string, error) {
	core, err := json.Marshal(map[string]any{
		"in": c.InputSchema, "out": c.OutputSchema, "side_effect": c.Meta.SideEffect,
		"risk": c.Meta.Risk, "version": c.Meta.Version,
	})
	if err != nil {
		return "", fmt.Errorf("%q: schema is not JSON: %w", c.ID, err)
	}
	full, err := json.Marshal(map[string]any{
		"core": HashOf(core), "expose": c.Meta.Expose, "approval": c.Meta.Approval, "policies": manifestOf(policies),
	})
	if err != nil {
		return "", fmt.Errorf("%q: %w", c.ID, err)
	}
	return HashOf(core) + "." + HashOf(full), nil
}

// core is the part of a revision whose change makes an approval stale.
func core(revision string) string {
	c, _, _ := strings.Cut(revision, ".")
	return c
}
