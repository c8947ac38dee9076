package gate

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// Descriptor is what a listing tells of a tool.
type Descriptor struct {
	ID          string
	Description string
	InputSchema json.RawMessage
	SideEffect  capability.SideEffect
	Risk        capability.Risk
	Tags        []string
	// RequiresApproval: the tool, or a policy for this actor, asks for a yes.
	RequiresApproval bool
}

// Scope narrows a listing; it is no authority, what is left out can still be
// called. A nil field does not narrow, an empty one matches nothing, and with
// both set what either matches is listed.
type Scope struct {
	Tags []string // tools with any of these
	IDs  []string
}

func (s Scope) holds(t *tool) bool {
	if s.Tags == nil && s.IDs == nil {
		return true
	}
	return slices.Contains(s.IDs, t.ID) ||
		slices.ContainsFunc(s.Tags, func(tag string) bool { return slices.Contains(t.Meta.Tags, tag) })
}

// Describe lists what actor may be offered on surface; see [Gate.DescribeScope].
func (g *Gate) Describe(ctx context.Context, s capability.Surface, actor capability.Actor) ([]Descriptor, error) {
	return g.DescribeScope(ctx, s, actor, Scope{})
}

// DescribeScope lists what actor may be offered on surface within scope, in
// registration order. It is presentation only: every call is checked again. A
// tool whose policies fail is left out. If the whole is not done within the
// budget of the configuration the error is [capability.CodeTimeout]: a short list
// would look like lost rights.
func (g *Gate) DescribeScope(ctx context.Context, s capability.Surface, actor capability.Actor, scope Scope) ([]Descriptor, error) {
	if !actor.Valid() {
		return nil, capability.Fail(capability.CodeUnauthenticated)
	}
	var tools []*tool
	for _, id := range g.order {
		if t := g.tools[id]; t.Meta.Exposed(s) && scope.holds(t) {
			tools = append(tools, t)
		}
	}
	bctx, cancel := context.WithTimeout(ctx, g.cfg.DiscoveryBudget)
	defer cancel()
	stances := g.discover(bctx, tools, s, actor)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if bctx.Err() != nil {
		e := capability.Fail(capability.CodeTimeout)
		e.Stage = capability.StageDiscovery
		return nil, e
	}
	var out []Descriptor
	for i, t := range tools {
		if stances[i] == policy.StanceDeny || stances[i] == policy.StanceHide {
			continue
		}
		out = append(out, Descriptor{
			ID: t.ID, Description: t.Meta.Description, InputSchema: slices.Clone(t.InputSchema),
			SideEffect: t.Meta.SideEffect, Risk: t.Meta.Risk, Tags: slices.Clone(t.Meta.Tags),
			RequiresApproval: t.Meta.Approval.Required || stances[i] == policy.StanceRequireApproval,
		})
	}
	return out, nil
}

// discover asks the discovery policies of each tool, some tools at a time.
func (g *Gate) discover(ctx context.Context, tools []*tool, s capability.Surface, actor capability.Actor) []policy.Stance {
	stances := make([]policy.Stance, len(tools))
	slots := make(chan struct{}, g.cfg.PolicyConcurrency)
	var wg sync.WaitGroup
	for i, t := range tools {
		if !policy.Speaks(t.policies, policy.PhaseDiscovery) {
			stances[i] = policy.StanceAllow
			continue
		}
		slots <- struct{}{} // it is given back when the policies have answered or their time is over
		wg.Go(func() {
			defer func() { <-slots }()
			stances[i] = policy.Evaluate(ctx, t.policies, policy.Request{
				Phase: policy.PhaseDiscovery, CapabilityID: t.ID, Meta: t.Meta, Surface: s, Actor: actor,
			}, g.cfg.PolicyTimeout).Stance
		})
	}
	wg.Wait()
	return stances
}
