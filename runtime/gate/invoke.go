package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// Call is one request to run a capability. Key, CapabilityID and Surface are
// required; what else is missing is refused in the stage that needs it.
type Call struct {
	// Key is the idempotency key, made from the cause: event id and index, turn
	// and step, schedule and due time. The same key never runs twice.
	Key           string
	CapabilityID  string
	Input         json.RawMessage // raw: the gate validates, nobody before it
	Actor         capability.Actor
	Surface       capability.Surface
	Origin        Origin
	CorrelationID string
}

// pass carries one execution through the stages.
type pass struct {
	e        Execution
	gov      *Governance // one snapshot for the whole call
	tool     *tool
	canon    json.RawMessage // the input as it came, canonical; nil if it is not JSON
	input    json.RawMessage // canonical, with defaults: what is decided on and runs
	approval *Approval       // the one it runs under
	rerun    bool            // the handler may have been entered before, by a process that died
	maybe    bool            // an earlier attempt may have taken effect
	inline   bool            // that approval was given in this call and is not in the ledger
	rt       *capability.Context
	records  []policy.Record
	fault    error // why there is no canonical form

	canonHash string
	tree      any           // what canon says
	ended     chan struct{} // closed when the end of the call is on record; nil while nobody waits for it
}

// Invoke takes a call through the stages and gives its envelope. A repeat under
// the same key gives the recorded envelope, goes on where it had not started, or
// is [capability.CodeOutcomeUnknown]. An error means that the ledger could not
// be read or written, that ctx ended before the start, that another caller is
// just starting the same call, or that the key belongs to another request. Except
// for the latter the same call may be made again: the
// journal knows whether the handler was entered, and it is not entered twice.
//
// Whoever calls with a key must hold the right to it (a lease on the lane): a
// started execution that does not run in this process is taken for dead.
func (g *Gate) Invoke(ctx context.Context, c Call) (capability.Result, error) {
	if c.Key == "" || c.CapabilityID == "" || c.Surface == "" {
		return capability.Result{}, errors.New("gate: a call needs a key, a capability id and a surface")
	}
	if err := ctx.Err(); err != nil {
		return capability.Result{}, fmt.Errorf("not begun: %w", err)
	}
	ctx, span := g.callSpan(ctx, c.CapabilityID, c.Surface, c.Actor, c.CorrelationID)
	res, err := g.invoke(ctx, c)
	span.finish(res, err)
	return res, err
}

func (g *Gate) invoke(ctx context.Context, c Call) (capability.Result, error) {
	now := g.now()
	p := &pass{gov: g.Governance()}
	hash := p.read(c.Input)
	e := Execution{
		ID: g.ids.next("exe"), Key: c.Key, CapabilityID: c.CapabilityID, ClaimHash: hash,
		Actor: c.Actor, Surface: c.Surface, Origin: c.Origin, CorrelationID: c.CorrelationID,
		Trace: g.inject(ctx), State: ExecClaimed, CreatedAt: now,
	}
	have, fresh, err := g.ledger.Claim(ctx, e, g.event(EventRequested, e, now, p.gov.classOf(c.CapabilityID)))
	if err != nil {
		return capability.Result{}, fmt.Errorf("claim: %w", err)
	}
	p.e = have
	if !fresh && have.State != ExecClaimed {
		return g.repeat(ctx, p)
	}
	return g.decideAndRun(ctx, p)
}

// read makes the input canonical, once, and gives the hash the claim is made
// under: that of the canonical form where there is one, else of the bytes as they
// came, so that a malformed request can be journalled, too.
func (p *pass) read(raw json.RawMessage) string {
	if len(raw) == 0 {
		p.canon, p.tree = json.RawMessage("{}"), map[string]any{}
		p.canonHash = HashOf(p.canon)
		return HashOf(raw)
	}
	if p.canon, p.tree, p.fault = canonical(raw); p.fault != nil {
		return HashOf(raw)
	}
	p.canonHash = HashOf(p.canon)
	return p.canonHash
}

// classOf labels the requested event when the id resolves.
func (v *Governance) classOf(id string) map[string]any {
	if t, ok := v.tools[id]; ok {
		return t.class
	}
	return nil
}

// decideAndRun is stages 3 to 15 of a fresh call.
func (g *Gate) decideAndRun(ctx context.Context, p *pass) (capability.Result, error) {
	if err := ctx.Err(); err != nil {
		return capability.Result{}, fmt.Errorf("not begun: %w", err)
	}
	t, ok := p.gov.tools[p.e.CapabilityID]
	switch {
	case !ok:
		return g.deny(ctx, p, EventDenied, "unknown", capability.Fail(capability.CodeNotFound))
	case !t.Meta.Exposed(p.e.Surface):
		return g.deny(ctx, p, EventDenied, "not-exposed", capability.Fail(capability.CodeNotFound))
	}
	p.tool = t
	if cerr := p.validate(true); cerr != nil {
		return g.fail(ctx, p, cerr)
	}
	if !p.e.Actor.Valid() {
		return g.fail(ctx, p, capability.Fail(capability.CodeUnauthenticated))
	}
	o, res, err := g.policies(ctx, p, policy.PhaseInvocation)
	if res != nil || err != nil {
		return value(res), err
	}
	demands := o.Demands
	if t.Meta.Approval.Required || len(demands) > 0 {
		if res, err := g.approve(ctx, p, demands); res != nil || err != nil {
			return value(res), err
		}
	}
	o, res, err = g.policies(ctx, p, policy.PhaseExecution)
	if res != nil || err != nil {
		return value(res), err
	}
	if len(o.Demands) > 0 && !g.satisfied(p, slices.Concat(demands, o.Demands)) {
		if res, err := g.approve(ctx, p, slices.Concat(demands, o.Demands)); res != nil || err != nil {
			return value(res), err
		}
	}
	return g.startAndRun(ctx, p)
}

// satisfied reports whether the approval the call holds is what demands ask for.
func (g *Gate) satisfied(p *pass, demands []policy.Decision) bool {
	if p.approval == nil {
		return false
	}
	_, want := g.merge(p.tool, demands)
	return covers(p.approval.Requirements, want)
}

func value(r *capability.Result) capability.Result {
	if r == nil {
		return capability.Result{}
	}
	return *r
}

// validate puts the defaults in and checks the input against the schema. What
// passes here is byte for byte what is approved and what runs. Without defaults
// it only checks: what was approved is not added to.
func (p *pass) validate(defaults bool) *capability.Error {
	c, v, err := p.canon, p.tree, p.fault
	hash := p.canonHash
	if err == nil && defaults && p.tool.fill != nil {
		c, v, err = p.tool.fill.fill(c)
		hash = HashOf(c)
	}
	if err != nil {
		return invalid(capability.Issue{Message: err.Error()})
	}
	if issues := checkTree(p.tool.in, v); len(issues) > 0 {
		return invalid(issues...)
	}
	p.input, p.e.InputHash = c, hash
	return nil
}

func invalid(issues ...capability.Issue) *capability.Error {
	e := capability.Fail(capability.CodeInputInvalid)
	e.Issues = issues
	return e
}

// policies asks one phase. A non-nil result ends the call.
func (g *Gate) policies(ctx context.Context, p *pass, ph policy.Phase) (policy.Outcome, *capability.Result, error) {
	if !p.tool.has(ph) {
		return policy.Outcome{Stance: policy.StanceAllow}, nil, nil
	}
	r := policy.Request{
		Phase: ph, CapabilityID: p.e.CapabilityID, Meta: shown(p.tool.Meta),
		Surface: p.e.Surface, Actor: p.e.Actor, Input: p.input,
	}
	if p.approval != nil {
		r.ApprovalID = p.approval.ID
	}
	sctx, span := g.spanOf(ctx, SpanPolicies, func() []Attr {
		return []Attr{{AttrCapability, p.e.CapabilityID}, {AttrExecution, p.e.ID}, {AttrPhase, string(ph)}}
	})
	sctx, stop := withDeadline(sctx, g.cfg.PolicyTimeout, nil)
	defer stop()
	o := policy.EvaluateUntil(sctx, p.tool.policies, r)
	span.end(o.Failed)
	if err := ctx.Err(); o.Failed && err != nil {
		// The caller went away; that is no verdict.
		return o, nil, fmt.Errorf("not begun: %w", err)
	}
	if p.records == nil {
		p.records = o.Records
	} else {
		p.records = append(p.records, o.Records...)
	}
	var reason string
	var cerr *capability.Error
	switch {
	case o.Failed:
		reason, cerr = "policy-failed", capability.Fail(capability.CodePolicyFailed)
	case o.Stance == policy.StanceDeny:
		reason, cerr = "policy-denied", capability.Fail(capability.CodePolicyDenied)
		if o.Message != "" {
			cerr = cerr.Say(o.Message)
		}
	case o.Stance == policy.StanceHide:
		reason, cerr = "hidden", capability.Fail(capability.CodeNotFound)
	default:
		return o, nil, nil
	}
	et := EventDenied
	if ph == policy.PhaseExecution {
		et = EventFailed // it had been let in; see stage 9
	}
	res, err := g.deny(ctx, p, et, reason, cerr)
	return o, &res, err
}

// shown is what a policy may see of a tool: nothing that it could change.
func shown(m capability.Meta) capability.Meta {
	m.Names, m.Annotations = maps.Clone(m.Names), maps.Clone(m.Annotations)
	return m
}

// startAndRun records the start, then runs. The start is the last point where
// nothing has happened yet.
func (g *Gate) startAndRun(ctx context.Context, p *pass) (capability.Result, error) {
	if err := ctx.Err(); err != nil {
		return capability.Result{}, fmt.Errorf("not begun: %w", err)
	}
	if cerr := g.context(ctx, p); cerr != nil {
		return g.fail(ctx, p, cerr) // before the start: an approval is not used up by it
	}
	return g.alone(ctx, p.e.ID, func(ctx context.Context) (capability.Result, error) { return g.start(ctx, p) })
}

func (g *Gate) start(ctx context.Context, p *pass) (capability.Result, error) {
	now := g.now()
	p.e.Input, p.e.Revision = p.input, p.tool.revision
	s := Start{
		ExecutionID: p.e.ID, Input: p.input, InputHash: p.e.InputHash, Revision: p.e.Revision, At: now,
	}
	if p.approval != nil && !p.inline {
		s.ApprovalID = p.approval.ID
		p.e.ApprovalID = p.approval.ID
	}
	s.Event = g.event(EventStarted, p.e, now, g.first)
	if p.inline {
		s.Event.ApprovalID = p.approval.ID
		s.Event.Data = map[string]any{"attempt": 1, "inline": true}
	}
	switch err := g.ledger.Start(ctx, s); {
	case errors.Is(err, ErrState):
		return g.lostStart(ctx, p)
	case errors.Is(err, errUnaudited):
		return g.fail(ctx, p, capability.Fail(capability.CodeAuditUnavailable).Because(err))
	case err != nil:
		return capability.Result{}, fmt.Errorf("record start: %w", err)
	}
	p.e.State, p.e.StartedAt = ExecStarted, now
	return g.run(ctx, p)
}

// deny ends a call that was never allowed to start.
func (g *Gate) deny(ctx context.Context, p *pass, et EventType, reason string, cerr *capability.Error) (capability.Result, error) {
	data := map[string]any{"reason": reason, "code": cerr.Code}
	if len(p.records) > 0 {
		data["policies"] = p.records
	}
	return g.end(ctx, p, []ExecState{ExecClaimed}, et, cerr, data)
}

// fail ends a call before its start for a reason that is no denial.
func (g *Gate) fail(ctx context.Context, p *pass, cerr *capability.Error) (capability.Result, error) {
	return g.end(ctx, p, []ExecState{ExecClaimed}, EventFailed, cerr,
		map[string]any{"code": cerr.Code, "stage": cerr.Stage, "attempts": 0})
}

// end records a terminal failure.
func (g *Gate) end(ctx context.Context, p *pass, from []ExecState, et EventType, cerr *capability.Error, data map[string]any) (capability.Result, error) {
	now := g.now()
	res := capability.Result{Status: capability.StatusFailed, ExecutionID: p.e.ID, Error: cerr}
	to := ExecFailed
	if cerr.Code == capability.CodeTimeout || cerr.Code == capability.CodeCancelled {
		res.Status, to = capability.StatusCancelled, ExecCancelled
	}
	if from[0] == ExecStarted && (!cerr.NoEffect || p.maybe || p.rerun) && p.tool != nil && p.tool.Meta.SideEffect.WriteLike() {
		res.Effect = capability.EffectUnknown
		data["effect_status"] = capability.EffectUnknown
	}
	err := g.finish(ctx, Finish{
		ExecutionID: p.e.ID, From: from, To: to, Result: res, At: now, Event: g.event(et, p.e, now, data),
	})
	if errors.Is(err, ErrState) {
		return g.standing(ctx, p, err)
	} else if err != nil {
		return capability.Result{}, err
	}
	return res, nil
}

// standing gives the envelope that somebody else recorded meanwhile for the same
// execution; there is only ever one.
func (g *Gate) standing(ctx context.Context, p *pass, lost error) (capability.Result, error) {
	e, err := g.ledger.Execution(ctx, p.e.ID)
	if err != nil {
		return capability.Result{}, fmt.Errorf("read execution: %w", err)
	}
	if e.Result == nil {
		return capability.Result{}, lost
	}
	return *e.Result, nil
}

// event makes an audit row about e.
func (g *Gate) event(t EventType, e Execution, at time.Time, data map[string]any) Event {
	a := e.Actor
	if !a.Valid() {
		a = capability.Actor{ID: "unknown", Kind: capability.KindAnonymous}
	}
	return Event{
		Type: t, At: at, Surface: e.Surface, Actor: capability.Actor{ID: a.ID, Kind: a.Kind},
		ExecutionID: e.ID, ApprovalID: e.ApprovalID, CapabilityID: e.CapabilityID,
		CorrelationID: e.CorrelationID, InputHash: e.InputHash, Data: data,
	}
}
