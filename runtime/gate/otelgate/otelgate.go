// Package otelgate traces the gate with OpenTelemetry.
//
// It makes spans with the tracer it is given and nothing else: no exporter, no
// metrics, no global. Spans hang below whatever span is in the context of the
// call. A resumption continues the trace of the call that asked: as its child
// where the context holds no span, else by a link. What a span may hold is
// decided by the gate ([gate.Tracing]); an error's text is never among it.
package otelgate

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"moothall/runtime/gate"
)

// Name is the instrumentation name to ask a provider's tracer for.
const Name = "moothall/runtime/gate"

// header is where W3C trace context keeps what is kept with a record.
const header = "traceparent"

// Tracer implements [gate.Tracer]. Make it with [New]. It is safe for
// concurrent use.
type Tracer struct {
	t trace.Tracer
}

var _ gate.Tracer = Tracer{}

// New makes a tracer of a provider's.
func New(p trace.TracerProvider) Tracer { return Tracer{p.Tracer(Name)} }

// linkKey holds the span context that the next span is linked to.
type linkKey struct{}

// Start implements [gate.Tracer].
func (t Tracer) Start(ctx context.Context, name string, attrs []gate.Attr) (context.Context, gate.Span) {
	opts := []trace.SpanStartOption{trace.WithAttributes(keyValues(attrs)...)}
	if link, ok := ctx.Value(linkKey{}).(trace.SpanContext); ok {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: link}))
		ctx = context.WithValue(ctx, linkKey{}, nil)
	}
	ctx, s := t.t.Start(ctx, name, opts...)
	return ctx, span{s}
}

// Inject implements [gate.Tracer].
func (Tracer) Inject(ctx context.Context) string {
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, m)
	return m[header]
}

// Continue implements [gate.Tracer]. What is no traceparent is left alone.
func (Tracer) Continue(ctx context.Context, traceparent string) context.Context {
	kept := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{header: traceparent}))
	switch {
	case !kept.IsValid():
		return ctx
	case trace.SpanContextFromContext(ctx).IsValid():
		return context.WithValue(ctx, linkKey{}, kept)
	}
	return trace.ContextWithRemoteSpanContext(ctx, kept)
}

type span struct{ s trace.Span }

func (s span) Set(attrs ...gate.Attr) { s.s.SetAttributes(keyValues(attrs)...) }

func (s span) End(failed bool) {
	if failed {
		s.s.SetStatus(codes.Error, "")
	} else {
		s.s.SetStatus(codes.Ok, "")
	}
	s.s.End()
}

func keyValues(attrs []gate.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, len(attrs))
	for i, a := range attrs {
		switch v := a.Value.(type) {
		case string:
			out[i] = attribute.String(a.Key, v)
		case int:
			out[i] = attribute.Int(a.Key, v)
		case bool:
			out[i] = attribute.Bool(a.Key, v)
		default:
			out[i] = attribute.String(a.Key, fmt.Sprintf("%T", v)) // a kind the gate does not use
		}
	}
	return out
}
