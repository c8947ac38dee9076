package gate_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/gowebpki/jcs"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/runtime/gate/memory"
	"moothall/runtime/policy"
)

// refund is the input of the benchmarks: three validated fields.
type refund struct {
	OrderID string `json:"orderId"`
	Amount  int    `json:"amount"`
	Reason  string `json:"reason"`
}

const (
	refundSchema = `{"type":"object","additionalProperties":false,"required":["orderId","amount","reason"],"properties":{
		"orderId":{"type":"string"},"amount":{"type":"number","exclusiveMinimum":0},"reason":{"type":"string","minLength":3}}}`
	refundInput = `{"orderId":"ord_42","amount":649,"reason":"damaged item"}`
	refundHash  = "8cd0cecb0c73767504ebf5f167f4e740b0e926ee18ff31f4bb46c2e66794d575"
)

// handle is the handler of the benchmarks: it decodes its input.
func handle(_ context.Context, _ *capability.Context, in json.RawMessage) (json.RawMessage, error) {
	var r refund
	if err := json.Unmarshal(in, &r); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"done":true}`), nil
}

// counting is a sink that counts.
type counting struct{ n atomic.Int64 }

func (c *counting) Write(context.Context, gate.Event) error { c.n.Add(1); return nil }

// benchGate makes a gate of so many tools and one policy that allows.
func benchGate(b *testing.B, tools int, s gate.Sink, meta func(*capability.Meta), phases ...policy.Phase) *gate.Gate {
	b.Helper()
	caps := make([]*capability.Capability, tools)
	for i := range caps {
		m := capability.Meta{
			Description: "Refunds an order.", SideEffect: capability.SideEffectWrite, Risk: capability.RiskMedium,
			Expose: []capability.Surface{capability.SurfaceDirect},
		}
		if meta != nil {
			meta(&m)
		}
		id := "orders.refund"
		if i > 0 {
			id = fmt.Sprintf("orders.tool%d", i)
		}
		caps[i] = capability.FromSchema(id, m, json.RawMessage(refundSchema), nil, handle)
	}
	r, err := capability.NewRegistry(caps...)
	if err != nil {
		b.Fatal(err)
	}
	g, err := gate.New(gate.Config{
		Registry: r, Ledger: &forgetful{Ledger: memory.New()}, Electors: &electors{may: map[string]gate.Answer{bob: gate.AnswerYes}},
		People: &people{known: true}, Contexts: &contexts{give: true},
		Policies: []policy.Policy{says("allow", allow, phases...)}, Audit: gate.Audit{Sinks: []gate.Sink{s}},
	})
	if err != nil {
		b.Fatal(err)
	}
	return g
}

func benchCall(key, input string) gate.Call {
	return gate.Call{
		Key: key, CapabilityID: "orders.refund", Input: json.RawMessage(input), Actor: user(alice),
		Surface: capability.SurfaceDirect, CorrelationID: "bench",
	}
}

// forgetful is a ledger that begins anew now and then, between two calls: what is
// measured is the gate, not how a million records are kept.
type forgetful struct {
	gate.Ledger
	claims int
}

func (l *forgetful) Claim(ctx context.Context, e gate.Execution, ev gate.Event) (gate.Execution, bool, error) {
	const most = 256 // even: a call that waits and its resumption are two claims
	if l.claims++; l.claims > most {
		l.Ledger, l.claims = memory.New(), 1
	}
	return l.Ledger.Claim(ctx, e, ev)
}

// mustBeWhole checks once that what is measured is the whole of it.
func mustBeWhole(b *testing.B) {
	b.Helper()
	s := &sink{}
	g := benchGate(b, 1, s, nil)
	res, err := g.Invoke(b.Context(), benchCall("k", refundInput))
	if err != nil || res.Status != completed {
		b.Fatalf("ended %v, %v", res, err)
	}
	if err := g.Drain(b.Context()); err != nil {
		b.Fatal(err)
	}
	if got := fmt.Sprint(s.types()); got != fmt.Sprint(threeSteps) || s.evs[2].InputHash != refundHash {
		b.Fatalf("events %s, hash %s", got, s.evs[2].InputHash)
	}
	if res, err = g.Invoke(b.Context(), benchCall("bad", `{"orderId":"ord_42","amount":0,"reason":"x"}`)); err != nil || code(res) != capability.CodeInputInvalid || len(res.Error.Issues) != 2 {
		b.Fatalf("bad input ended %v, %v", res, err)
	}
}

func BenchmarkInvoke(b *testing.B) {
	mustBeWhole(b)
	for _, tools := range []int{1, 10, 100, 1000} {
		b.Run(strconv.Itoa(tools), func(b *testing.B) {
			g := benchGate(b, tools, &counting{}, nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				res, err := g.Invoke(b.Context(), benchCall(strconv.Itoa(i), refundInput))
				if err != nil || res.Status != completed {
					b.Fatal(res, err)
				}
			}
		})
	}
}

// BenchmarkBare is the sum of the library calls that invoke must make.
func BenchmarkBare(b *testing.B) {
	c := jsonschema.NewCompiler()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(refundSchema)))
	if err != nil {
		b.Fatal(err)
	}
	if err := c.AddResource("x:y", doc); err != nil {
		b.Fatal(err)
	}
	schema := c.MustCompile("x:y")
	b.ReportAllocs()
	for b.Loop() {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(refundInput)))
		if err != nil {
			b.Fatal(err)
		}
		if err := schema.Validate(v); err != nil {
			b.Fatal(err)
		}
		canon, err := jcs.Transform([]byte(refundInput))
		if err != nil {
			b.Fatal(err)
		}
		sum := sha256.Sum256(canon)
		if hex.EncodeToString(sum[:]) != refundHash {
			b.Fatal("hash")
		}
		if _, err := handle(b.Context(), nil, canon); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkApprovalCycle(b *testing.B) {
	mustBeWhole(b)
	g := benchGate(b, 10, &counting{}, gated)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		key := strconv.Itoa(i)
		res, err := g.Invoke(b.Context(), benchCall(key, refundInput))
		if err != nil || res.Status != waits {
			b.Fatal(res, err)
		}
		if _, err := g.Decide(b.Context(), gate.Decision{ApprovalID: res.ApprovalID, Approver: user(bob), Yes: true, Cause: key}); err != nil {
			b.Fatal(err)
		}
		res, err = g.Resume(b.Context(), res.ApprovalID, gate.ResumeOptions{})
		if err != nil || res.Status != completed {
			b.Fatal(res, err)
		}
	}
}

func BenchmarkDescribe300(b *testing.B) {
	for name, tt := range map[string]struct {
		phases []policy.Phase
		scope  gate.Scope
	}{
		"no discovery policy": {nil, gate.Scope{}},
		"a discovery policy":  {[]policy.Phase{policy.PhaseDiscovery}, gate.Scope{}},
		"one of 300":          {[]policy.Phase{policy.PhaseDiscovery}, gate.Scope{IDs: []string{"orders.refund"}}},
	} {
		b.Run(name, func(b *testing.B) {
			g := benchGate(b, 300, &counting{}, nil, tt.phases...)
			want := 300
			if tt.scope.IDs != nil {
				want = 1
			}
			b.ReportAllocs()
			for b.Loop() {
				list, err := g.DescribeScope(b.Context(), capability.SurfaceDirect, user(alice), tt.scope)
				if err != nil || len(list) != want {
					b.Fatal(len(list), err)
				}
			}
		})
	}
}
