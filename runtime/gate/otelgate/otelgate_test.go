package otelgate_test

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"moothall/runtime/gate"
	"moothall/runtime/gate/otelgate"
)

func recorder() (*tracetest.SpanRecorder, *sdk.TracerProvider) {
	r := tracetest.NewSpanRecorder()
	return r, sdk.NewTracerProvider(sdk.WithSpanProcessor(r))
}

func TestR187SpansOfOpenTelemetry(t *testing.T) {
	r, p := recorder()
	tr := otelgate.New(p)
	host, hostSpan := p.Tracer("host").Start(t.Context(), "host")
	ctx, call := tr.Start(host, gate.SpanCall, []gate.Attr{{Key: gate.AttrCapability, Value: "hall.act"}, {Key: gate.AttrAttempt, Value: 2}, {Key: "b", Value: true}})
	_, run := tr.Start(ctx, gate.SpanExecution, nil)
	run.End(false)
	call.Set(gate.Attr{Key: gate.AttrErrorCode, Value: "TIMEOUT"})
	call.End(true)
	hostSpan.End()
	got := r.Ended()
	if len(got) != 3 {
		t.Fatalf("%d spans; want 3", len(got))
	}
	exec, root := got[0], got[1]
	if exec.Name() != gate.SpanExecution || exec.Parent().SpanID() != root.SpanContext().SpanID() || exec.Status().Code != codes.Ok {
		t.Errorf("the execution span is %v", exec)
	}
	if root.Parent().SpanID() != got[2].SpanContext().SpanID() || root.Status().Code != codes.Error || len(root.Events()) != 0 {
		t.Errorf("the call span is %v", root)
	}
	set := attribute.NewSet(root.Attributes()...)
	for _, kv := range []attribute.KeyValue{
		attribute.String(gate.AttrCapability, "hall.act"), attribute.Int(gate.AttrAttempt, 2),
		attribute.Bool("b", true), attribute.String(gate.AttrErrorCode, "TIMEOUT"),
	} {
		if v, ok := set.Value(kv.Key); !ok || v != kv.Value {
			t.Errorf("%s is %v; want %v", kv.Key, v, kv.Value)
		}
	}
}

func TestR189ContinueAKeptTrace(t *testing.T) {
	r, p := recorder()
	tr := otelgate.New(p)
	asked, span := tr.Start(t.Context(), gate.SpanCall, nil)
	kept := tr.Inject(asked)
	span.End(false)
	if len(kept) != 55 {
		t.Fatalf("traceparent %q", kept)
	}
	_, resumed := tr.Start(tr.Continue(context.Background(), kept), gate.SpanCall, nil)
	resumed.End(false)
	host, hostSpan := p.Tracer("host").Start(t.Context(), "worker")
	linkedCtx, linked := tr.Start(tr.Continue(host, kept), gate.SpanCall, nil)
	_, below := tr.Start(linkedCtx, gate.SpanExecution, nil)
	below.End(false)
	linked.End(false)
	hostSpan.End()
	got := r.Ended()
	first, child, inner, link := got[0], got[1], got[2], got[3]
	if child.Parent().SpanID() != first.SpanContext().SpanID() || child.SpanContext().TraceID() != first.SpanContext().TraceID() {
		t.Error("a resumption is not a child of the call that asked")
	}
	if len(link.Links()) != 1 || link.Links()[0].SpanContext.SpanID() != first.SpanContext().SpanID() || link.SpanContext().TraceID() == first.SpanContext().TraceID() {
		t.Error("a resumption below a span is not linked to the call that asked")
	}
	if len(inner.Links()) != 0 {
		t.Error("the link is on more than one span")
	}
}

func TestContinueWithNonsense(t *testing.T) {
	_, p := recorder()
	tr := otelgate.New(p)
	for _, s := range []string{"", "x", "00-00000000000000000000000000000000-0000000000000000-01"} {
		if got := tr.Inject(tr.Continue(t.Context(), s)); got != "" {
			t.Errorf("%q became %q", s, got)
		}
	}
}
