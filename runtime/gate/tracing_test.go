package gate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/policy"
)

// tracer keeps spans; a traceparent is the name and number of a span.
type tracer struct {
	mu    sync.Mutex
	spans []*traceSpan
}

type traceSpan struct {
	t             *tracer
	name, parent  string
	attrs         map[string]any
	ended, failed bool
}

type spanKey struct{}

func (t *tracer) Start(ctx context.Context, name string, attrs []gate.Attr) (context.Context, gate.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &traceSpan{t: t, name: name, attrs: map[string]any{}}
	s.parent, _ = ctx.Value(spanKey{}).(string)
	for _, a := range attrs {
		s.attrs[a.Key] = a.Value
	}
	t.spans = append(t.spans, s)
	return context.WithValue(ctx, spanKey{}, fmt.Sprintf("%s#%d", name, len(t.spans))), s
}

func (t *tracer) Inject(ctx context.Context) string {
	s, _ := ctx.Value(spanKey{}).(string)
	return s
}

func (t *tracer) Continue(ctx context.Context, trace string) context.Context {
	if _, ok := ctx.Value(spanKey{}).(string); ok {
		return ctx
	}
	return context.WithValue(ctx, spanKey{}, trace)
}

func (s *traceSpan) Set(attrs ...gate.Attr) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	for _, a := range attrs {
		s.attrs[a.Key] = a.Value
	}
}

func (s *traceSpan) End(failed bool) {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.ended {
		panic("ended twice")
	}
	s.ended, s.failed = true, failed
}

// tree lists the spans: name<parent, with a ! for those that failed.
func (t *tracer) tree() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := []string{}
	for _, s := range t.spans {
		line := strings.TrimPrefix(s.name, "agent.") + "<" + strings.TrimPrefix(s.parent, "agent.")
		if s.failed {
			line += " !"
		}
		if !s.ended {
			line += " (open)"
		}
		out = append(out, line)
	}
	return out
}

func TestR187Spans(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg   gate.Config
		kit   kit
		twice bool
		want  []string
	}{
		"R187 no policy": {gate.Config{}, kit{}, false, []string{"capability_call<", "procedure_execution<capability_call#1"}},
		"R187 a policy": {
			gate.Config{Policies: []policy.Policy{says("a", allow)}},
			kit{},
			false,
			[]string{"capability_call<", "policy_evaluation<capability_call#1", "procedure_execution<capability_call#1"},
		},
		"R187 one of each attempt": {gate.Config{}, kit{run: failing(1, retryable()), meta: func(m *capability.Meta) {
			m.SideEffect, m.Retry = capability.SideEffectRead, capability.Retry{Max: 1, Backoff: time.Nanosecond}
		}}, false, []string{"capability_call<", "procedure_execution<capability_call#1 !", "procedure_execution<capability_call#1"}},
		"R187 a question runs nothing": {gate.Config{}, kit{meta: gated}, false, []string{"capability_call<", "approval_request<capability_call#1"}},
		"R187 inline": {
			inline(bob, true),
			kit{meta: gated},
			false,
			[]string{"capability_call<", "approval_request<capability_call#1", "procedure_execution<capability_call#1"},
		},
		"R188 a no is no fault of the question": {inline(bob, false), kit{meta: gated}, false, []string{"capability_call< !", "approval_request<capability_call#1"}},
		"R188 a policy that fails": {
			gate.Config{Policies: []policy.Policy{rule{"a", nil, func(context.Context, policy.Request) (policy.Decision, error) { return allow, errFault }}}},
			kit{},
			false,
			[]string{"capability_call< !", "policy_evaluation<capability_call#1 !"},
		},
		"a repeat": {gate.Config{}, kit{}, true, []string{"capability_call<", "procedure_execution<capability_call#1", "capability_call<"}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tracer{}
			tt.cfg.Tracing.Tracer = tr
			w := one(t, tt.cfg, tt.kit)
			w.invoke(call("k"))
			if tt.twice {
				w.invoke(call("k"))
			}
			equal(t, "spans", tr.tree(), tt.want)
		})
	}
}

func TestR188Attributes(t *testing.T) {
	for _, actorID := range []bool{false, true} {
		tr := &tracer{}
		w := one(t, gate.Config{Tracing: gate.Tracing{Tracer: tr, ActorID: actorID}}, kit{})
		c := call("k")
		c.Input = nil
		res := w.invoke(c)
		want := map[string]any{
			"moothall.capability_id": "hall.act", "moothall.surface": "command", "moothall.actor_kind": "user",
			"moothall.side_effect": "write", "moothall.risk": "low", "moothall.execution_id": res.ExecutionID,
			"moothall.correlation_id": "$ask", "moothall.outcome": "failed", "moothall.error_code": "INPUT_INVALID",
		}
		if actorID { // R189
			want["moothall.actor_id"] = alice
		}
		equal(t, "attributes", tr.spans[0].attrs, want)
	}
}

func TestR189TheTraceIsKeptAcrossSuspension(t *testing.T) {
	tr := &tracer{}
	w := one(t, gate.Config{Tracing: gate.Tracing{Tracer: tr}}, kit{meta: gated})
	host, _ := tr.Start(t.Context(), "host", nil)
	res, err := w.Invoke(host, call("k"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "root", tr.spans[1].parent, "host#1")
	a := w.approval(res.ApprovalID)
	equal(t, "trace", a.Trace, "agent.capability_call#2")
	if _, err := w.vote(a.ID, bob, true); err != nil {
		t.Fatal(err)
	}
	done := w.resume(a.ID, gate.ResumeOptions{})
	wants(t, done, completed, "")
	i := slices.IndexFunc(tr.spans[2:], func(s *traceSpan) bool { return s.name == gate.SpanCall }) + 2
	equal(t, "the resumption's parent", tr.spans[i].parent, a.Trace)
	e, err := w.Execution(t.Context(), done.ExecutionID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "trace", e.Trace, fmt.Sprintf("agent.capability_call#%d", i+1))
	equal(t, "approval on it", tr.spans[i].attrs["moothall.approval_id"], any(a.ID))
}

func TestDiscoverySpan(t *testing.T) {
	tr := &tracer{}
	w := one(t, gate.Config{Tracing: gate.Tracing{Tracer: tr}}, kit{})
	listed(t, w, gate.Scope{})
	equal(t, "spans", tr.tree(), []string{"discovery<"})
	equal(t, "attributes", tr.spans[0].attrs, map[string]any{"moothall.surface": "command", "moothall.actor_kind": "user", "moothall.count": 1})
}
