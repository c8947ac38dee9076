package gate

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/rs/zerolog"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// Descriptor is what a listing tells of a tool.
type Descriptor struct {
	ID          string
	Name        string // what it is called on the surface that was asked for
	Description string
	InputSchema json.RawMessage
	SideEffect  capability.SideEffect
	Risk        capability.Risk
	Tags        []string
	Annotations map[string]any
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

func (s Scope) narrows() bool { return s.Tags != nil || s.IDs != nil }

func (s Scope) holds(t *tool) bool {
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
	ctx, span := g.spanOf(ctx, SpanDiscovery, func() []Attr { return g.who("", s, actor, "") })
	list, err := g.list(ctx, s, actor, scope)
	if err != nil {
		span.set(Attr{AttrErrorCode, string(capability.CodeOf(err))})
	}
	span.set(Attr{AttrCount, len(list)})
	span.end(err != nil)
	return list, err
}

func (g *Gate) list(ctx context.Context, s capability.Surface, actor capability.Actor, scope Scope) ([]Descriptor, error) {
	tools := g.Governance().exposed[s]
	if scope.narrows() {
		tools = slices.DeleteFunc(slices.Clone(tools), func(t *tool) bool { return !scope.holds(t) })
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
	out := make([]Descriptor, 0, len(tools))
	for i, t := range tools {
		if stances[i] == policy.StanceDeny || stances[i] == policy.StanceHide {
			continue
		}
		out = append(out, Descriptor{
			ID: t.ID, Name: t.Name(s), Description: t.Meta.Description, InputSchema: slices.Clone(t.InputSchema),
			SideEffect: t.Meta.SideEffect, Risk: t.Meta.Risk, Tags: slices.Clone(t.Meta.Tags),
			Annotations:      maps.Clone(t.Meta.Annotations),
			RequiresApproval: t.Meta.Approval.Required || stances[i] == policy.StanceRequireApproval,
		})
	}
	g.discovered(ctx, s, actor, out)
	return out, nil
}

// discovered puts a listing on record. Nothing was changed by it, so one that
// cannot be recorded is only logged.
func (g *Gate) discovered(ctx context.Context, s capability.Surface, actor capability.Actor, list []Descriptor) {
	ids := make([]string, len(list))
	for i, d := range list {
		ids[i] = d.ID
	}
	slices.Sort(ids)
	b, err := json.Marshal(ids) // ids are plain words: this is the canonical form
	if err != nil {
		b = nil
	}
	data := map[string]any{"count": len(list), "surface": s, "digest": HashOf(b)}
	if g.cfg.Audit.Verbose {
		data["ids"] = ids
	}
	ev := Event{
		Type: EventDiscovered, At: g.now(), Surface: s, Actor: capability.Actor{ID: actor.ID, Kind: actor.Kind}, Data: data,
	}
	if err := g.ledger.Record(ctx, ev); err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Msg("Could not record a listing")
	}
}
