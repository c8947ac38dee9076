package gate_test

import (
	"context"
	"testing"

	"moothall/runtime/gate"
)

type (
	badTracer struct{ at string }
	badSpan   struct{ name, at string }
)

func (b badTracer) Start(ctx context.Context, name string, _ []gate.Attr) (context.Context, gate.Span) {
	return ctx, badSpan{name, b.at}
}
func (badTracer) Inject(context.Context) string                          { return "" }
func (badTracer) Continue(ctx context.Context, _ string) context.Context { return ctx }
func (b badSpan) Set(...gate.Attr)                                       {}
func (b badSpan) End(bool) {
	if b.name == b.at {
		panic("tracer")
	}
}

func TestHostileTracer(t *testing.T) {
	w := one(t, gate.Config{Tracing: gate.Tracing{Tracer: badTracer{gate.SpanExecution}}}, kit{})
	func() {
		defer func() { t.Log("recovered:", recover()) }()
		w.invoke(call("k"))
	}()
	w2 := w.Scope()
	r, err := w2.Invoke(t.Context(), call("k"))
	t.Log(w.runs(), r.Status, r.Error, err)
	if r.Status != completed {
		t.Error("a tracer's panic lost the outcome of a completed write")
	}
}
