package gate

import (
	"context"

	"moothall/runtime/capability"
)

// Tracer is what the gate needs of a tracing library; the otelgate package has
// one for OpenTelemetry. It must be safe for concurrent use, and neither block
// nor panic.
type Tracer interface {
	// Start begins a span below the one in ctx, if there is one, and gives a
	// context that holds it.
	Start(ctx context.Context, name string, attrs []Attr) (context.Context, Span)
	// Inject gives the W3C traceparent of the span in ctx, or "".
	Inject(ctx context.Context) string
	// Continue gives a context in which the next span belongs to a trace that was
	// kept: as a child of it where ctx holds no span, else linked to it.
	Continue(ctx context.Context, traceparent string) context.Context
}

// Span is one span. End is called once.
type Span interface {
	Set(attrs ...Attr)
	// End ends the span; failed marks it as an error. Nothing of an error but its
	// code is ever given to a span.
	End(failed bool)
}

// Attr is an attribute of a span. Value is a string, an int or a bool.
type Attr struct {
	Key   string
	Value any
}

// Tracing says whether calls are traced. The zero value: they are not.
type Tracing struct {
	Tracer Tracer
	// ActorID puts the actor's id on spans, which may go to places that the audit
	// trail does not go to. Default false.
	ActorID bool
}

// The spans. A call has a policy span for each phase in which a policy has a
// say, an approval span if it asks people, and an execution span per attempt; a
// listing has one span of its own. A call that suspends, and one whose approval
// was refused, end well; every other failure marks the span.
const (
	SpanCall      = "agent.capability_call"
	SpanPolicies  = "agent.policy_evaluation"
	SpanApproval  = "agent.approval_request"
	SpanExecution = "agent.procedure_execution"
	SpanDiscovery = "agent.discovery"
)

// The attributes. Nothing else is put on a span: no arguments, no output, no
// error text.
const (
	AttrCapability  = "moothall.capability_id"
	AttrSurface     = "moothall.surface"
	AttrActorKind   = "moothall.actor_kind"
	AttrActorID     = "moothall.actor_id" // see [Tracing]
	AttrSideEffect  = "moothall.side_effect"
	AttrRisk        = "moothall.risk"
	AttrExecution   = "moothall.execution_id"
	AttrApproval    = "moothall.approval_id"
	AttrCorrelation = "moothall.correlation_id"
	AttrPhase       = "moothall.phase"
	AttrAttempt     = "moothall.attempt"
	AttrOutcome     = "moothall.outcome" // an envelope's status
	AttrErrorCode   = "moothall.error_code"
	AttrCount       = "moothall.count" // of a listing
)

// span is a [Span] that may not be there.
type span struct{ s Span }

func (s span) set(attrs ...Attr) {
	if s.s != nil {
		s.s.Set(attrs...)
	}
}

func (s span) end(failed bool) {
	if s.s != nil {
		s.s.End(failed)
	}
}

// finish ends the span of a call with its envelope.
func (s span) finish(res capability.Result, err error) {
	if s.s == nil {
		return
	}
	s.envelope(res, err)
	s.s.End(err != nil || res.Status == capability.StatusFailed || res.Status == capability.StatusCancelled)
}

func (s span) envelope(res capability.Result, err error) {
	var attrs []Attr
	if res.Status != "" {
		attrs = append(attrs, Attr{AttrOutcome, string(res.Status)})
	}
	if res.ExecutionID != "" {
		attrs = append(attrs, Attr{AttrExecution, res.ExecutionID})
	}
	if res.ApprovalID != "" {
		attrs = append(attrs, Attr{AttrApproval, res.ApprovalID})
	}
	switch {
	case res.Error != nil:
		attrs = append(attrs, Attr{AttrErrorCode, string(res.Error.Code)})
	case err != nil:
		attrs = append(attrs, Attr{AttrErrorCode, string(capability.CodeInternal)})
	}
	s.s.Set(attrs...)
}

func (e *engine) approvalSpan(ctx context.Context, p *pass) (context.Context, span) {
	return e.spanOf(ctx, SpanApproval, func() []Attr {
		return []Attr{{AttrCapability, p.e.CapabilityID}, {AttrExecution, p.e.ID}}
	})
}

// asked ends the span of a question. Waiting and a no are both good ends.
func (s span) asked(res *capability.Result, err error) {
	if s.s == nil {
		return
	}
	bad := err != nil
	if res != nil {
		s.envelope(*res, err)
		bad = bad || (res.Error != nil && res.Error.Code != capability.CodeApprovalRejected)
	}
	s.s.End(bad)
}

// spanOf begins a span with attributes that are made only if somebody looks.
func (e *engine) spanOf(ctx context.Context, name string, attrs func() []Attr) (context.Context, span) {
	t := e.cfg.Tracing.Tracer
	if t == nil {
		return ctx, span{}
	}
	ctx, s := t.Start(ctx, name, attrs())
	return ctx, span{s}
}

func (e *engine) callSpan(ctx context.Context, id string, s capability.Surface, a capability.Actor, correlation string) (context.Context, span) {
	return e.spanOf(ctx, SpanCall, func() []Attr { return e.who(id, s, a, correlation) })
}

func (e *engine) who(id string, s capability.Surface, a capability.Actor, correlation string) []Attr {
	attrs := []Attr{{AttrSurface, string(s)}, {AttrActorKind, string(a.Kind)}}
	if e.cfg.Tracing.ActorID {
		attrs = append(attrs, Attr{AttrActorID, a.ID})
	}
	if correlation != "" {
		attrs = append(attrs, Attr{AttrCorrelation, correlation})
	}
	if id == "" {
		return attrs
	}
	attrs = append(attrs, Attr{AttrCapability, id})
	if t, ok := e.Governance().tools[id]; ok {
		attrs = append(attrs, Attr{AttrSideEffect, string(t.Meta.SideEffect)}, Attr{AttrRisk, string(t.Meta.Risk)})
	}
	return attrs
}

// inject gives the traceparent to be kept with a record.
func (e *engine) inject(ctx context.Context) string {
	if t := e.cfg.Tracing.Tracer; t != nil {
		return t.Inject(ctx)
	}
	return ""
}

func (e *engine) continues(ctx context.Context, trace string) context.Context {
	if t := e.cfg.Tracing.Tracer; t != nil && trace != "" {
		return t.Continue(ctx, trace)
	}
	return ctx
}
