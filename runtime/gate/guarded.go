package gate

import (
	"context"
	"errors"

	"moothall/runtime/capability"
)

// The ports below are other people's code. A panic in one must neither take the
// process nor decide anything: it is an error, or "cannot tell", or nothing. What
// was panicked with is not repeated; it may hold anything.

var errPort = errors.New("a port of the gate panicked")

type guardedElectors struct{ Electors }

func (e guardedElectors) MayDecide(ctx context.Context, a Approval, who capability.Actor) (ans Answer, why string) {
	defer func() {
		if recover() != nil {
			ans, why = AnswerCannotTell, "it could not be found out who may decide"
		}
	}()
	return e.Electors.MayDecide(ctx, a, who)
}

type guardedPeople struct{ People }

func (p guardedPeople) Identities(ctx context.Context, id string) (ids []string, err error) {
	defer func() {
		if recover() != nil {
			ids, err = nil, errPort
		}
	}()
	return p.People.Identities(ctx, id)
}

type guardedContexts struct{ Contexts }

func (c guardedContexts) Context(ctx context.Context, call capability.CallInfo, o Origin) (rt *capability.Context, err error) {
	defer func() {
		if recover() != nil {
			rt, err = nil, errPort
		}
	}()
	return c.Contexts.Context(ctx, call, o)
}

// guardedTracer loses a span rather than a call.
type guardedTracer struct{ Tracer }

func (t guardedTracer) Start(ctx context.Context, name string, attrs []Attr) (out context.Context, s Span) {
	defer func() {
		if recover() != nil {
			out, s = ctx, guardedSpan{}
		}
	}()
	out, s = t.Tracer.Start(ctx, name, attrs)
	if out == nil {
		out = ctx
	}
	return out, guardedSpan{s}
}

func (t guardedTracer) Inject(ctx context.Context) (trace string) {
	defer func() {
		if recover() != nil {
			trace = ""
		}
	}()
	return t.Tracer.Inject(ctx)
}

func (t guardedTracer) Continue(ctx context.Context, trace string) (out context.Context) {
	defer func() {
		if recover() != nil || out == nil {
			out = ctx
		}
	}()
	return t.Tracer.Continue(ctx, trace)
}

type guardedSpan struct{ s Span }

func (s guardedSpan) Set(attrs ...Attr) {
	defer func() { _ = recover() }()
	if s.s != nil {
		s.s.Set(attrs...)
	}
}

func (s guardedSpan) End(failed bool) {
	defer func() { _ = recover() }()
	if s.s != nil {
		s.s.End(failed)
	}
}

// guarded wraps the ports of a configuration that has been checked.
func (c Config) guarded() Config {
	c.Electors, c.People, c.Contexts = guardedElectors{c.Electors}, guardedPeople{c.People}, guardedContexts{c.Contexts}
	if c.Tracing.Tracer != nil {
		c.Tracing.Tracer = guardedTracer{c.Tracing.Tracer}
	}
	return c
}
