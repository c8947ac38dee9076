package capability_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"moothall/runtime/capability"
)

func meta() capability.Meta {
	return capability.Meta{Description: "A tool.", SideEffect: capability.SideEffectRead, Risk: capability.RiskLow}
}

func nothing(context.Context, *capability.Context, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`null`), nil
}

func with(change func(*capability.Meta)) *capability.Capability {
	m := meta()
	change(&m)
	return capability.FromSchema("hall.act", m, json.RawMessage(`{}`), nil, nothing)
}

func TestR006RegistryRefuses(t *testing.T) {
	id := func(id string) *capability.Capability {
		return capability.FromSchema(id, meta(), json.RawMessage(`{}`), nil, nothing)
	}
	for name, tt := range map[string]struct {
		c    *capability.Capability
		want string
	}{
		"R006 no description":       {with(func(m *capability.Meta) { m.Description = "" }), "no description"},
		"R007 a blank one":          {with(func(m *capability.Meta) { m.Description = " \t" }), "no description"},
		"R002 R006 no side effect":  {with(func(m *capability.Meta) { m.SideEffect = "" }), "side effect"},
		"an unknown side effect":    {with(func(m *capability.Meta) { m.SideEffect = "some" }), "side effect"},
		"R006 no risk":              {with(func(m *capability.Meta) { m.Risk = "" }), "risk"},
		"R009 an unknown surface":   {with(func(m *capability.Meta) { m.Expose = []capability.Surface{"moon"} }), "moon"},
		"a negative time-out":       {with(func(m *capability.Meta) { m.Timeout = -1 }), "negative"},
		"RZ13 a negative expiry":    {with(func(m *capability.Meta) { m.Approval.ExpiresIn = -1 }), "negative"},
		"a negative quorum":         {with(func(m *capability.Meta) { m.Approval.Quorum = -1 }), "negative"},
		"R013 retries":              {with(func(m *capability.Meta) { m.Retry.Max = -1 }), "negative"},
		"R013 back-off":             {with(func(m *capability.Meta) { m.Retry.Backoff = -1 }), "negative"},
		"R010 a write with retry":   {with(func(m *capability.Meta) { m.SideEffect, m.Retry.Max = capability.SideEffectWrite, 1 }), "SI-11"},
		"R010 an external one":      {with(func(m *capability.Meta) { m.SideEffect, m.Retry.Max = capability.SideEffectExternal, 1 }), "SI-11"},
		"R010 a destructive one":    {with(func(m *capability.Meta) { m.SideEffect, m.Retry.Max = capability.SideEffectDestructive, 1 }), "SI-11"},
		"R018 an empty id":          {id(""), "lower-case words"},
		"R018 an empty segment":     {id("hall..act"), "lower-case words"},
		"R018 a dot at the end":     {id("hall."), "lower-case words"},
		"upper case":                {id("Hall.act"), "lower-case words"},
		"a space":                   {id("hall act"), "lower-case words"},
		"a new line":                {id("hall.act\n"), "lower-case words"},
		"no handler":                {capability.FromSchema("hall.act", meta(), json.RawMessage(`{}`), nil, nil), "no handler"},
		"no schema":                 {capability.FromSchema("hall.act", meta(), nil, nil, nothing), "no input schema"},
		"none at all":               {nil, "is nil"},
		"an input that has no form": {capability.Define("hall.act", meta(), func(context.Context, *capability.Context, chan int) (int, error) { return 0, nil }), "input type"},
		"an output without a form":  {capability.Define("hall.act", meta(), func(context.Context, *capability.Context, struct{}) (func(), error) { return nil, nil }), "output type"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := capability.NewRegistry(tt.c)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want one with %q", err, tt.want)
			}
		})
	}
}

func TestR010Accepted(t *testing.T) {
	for name, c := range map[string]*capability.Capability{
		"R005 exposed nowhere": with(func(*capability.Meta) {}),
		"R010 an idempotent write": with(func(m *capability.Meta) {
			m.SideEffect, m.Idempotent, m.Retry.Max = capability.SideEffectWrite, true, 2
		}),
		"R011 a read with retry": with(func(m *capability.Meta) { m.Retry.Max = 2 }),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := capability.NewRegistry(c); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestR014OneErrorListsEveryProblem(t *testing.T) {
	a := with(func(m *capability.Meta) { m.Description, m.Risk = "", "" })
	b := capability.FromSchema("hall.other", capability.Meta{Description: "x", Risk: capability.RiskLow}, json.RawMessage(`{}`), nil, nothing)
	_, err := capability.NewRegistry(a, b, with(func(*capability.Meta) {}))
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"4 problems", `"hall.act" has no description`, `"hall.act" does not say its risk`, `"hall.other" does not say its side effect`, `"hall.act" is registered twice`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

func TestR001R003OrderAndLookup(t *testing.T) {
	var caps []*capability.Capability
	for _, id := range []string{"customers.search", "customers.get", "orders.search", "orders.refund"} {
		caps = append(caps, capability.FromSchema(id, meta(), json.RawMessage(`{}`), nil, nothing))
	}
	r, err := capability.NewRegistry(caps...)
	if err != nil {
		t.Fatal(err)
	}
	list := r.All()
	for i, c := range list {
		if c != caps[i] {
			t.Errorf("%d is %s", i, c.ID)
		}
	}
	list[0] = nil
	if r.All()[0] == nil {
		t.Error("the registry can be changed through its list")
	}
	if c, err := r.Get("orders.refund"); err != nil || c.ID != "orders.refund" {
		t.Errorf("%v %v", c, err)
	}
	if _, err := r.Get("orders"); !errors.Is(err, capability.ErrNoCapability) { // R003
		t.Errorf("unknown: %v", err)
	}
}

type in struct {
	Who   string `json:"who"`
	Times int    `json:"times,omitempty"`
}

func TestDefine(t *testing.T) {
	c := capability.Define("hall.greet", meta(), func(_ context.Context, _ *capability.Context, i in) (string, error) {
		if i.Who == "" {
			return "", errors.New("nobody")
		}
		return fmt.Sprint(i.Who, i.Times), nil
	})
	for input, want := range map[string]string{
		`{"who":"bob"}`:           `"bob0"`,
		`{"who":"bob","times":2}`: `"bob2"`,
		`{"who":""}`:              "nobody",
		`{"who":"bob","x":1}`:     "decode validated input",
		`{"who":"bob"} {}`:        "more than one value",
		`{"who":7}`:               "decode validated input",
		``:                        "decode validated input",
	} {
		out, err := c.Run(t.Context(), &capability.Context{}, json.RawMessage(input))
		if got := string(out); err == nil && got != want || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %s %v; want %s", input, got, err, want)
		}
	}
	var schema struct {
		Required []string `json:"required"`
	}
	if err := json.Unmarshal(c.InputSchema, &schema); err != nil || len(schema.Required) != 1 || schema.Required[0] != "who" {
		t.Errorf("required: %v %v", schema.Required, err)
	}
}

// Every code has a stage and a text, and what is hidden looks all the same.
func TestCodes(t *testing.T) {
	codes := []capability.Code{
		capability.CodeNotFound, capability.CodeInputInvalid, capability.CodeUnauthenticated, capability.CodeForbidden, capability.CodePolicyDenied,
		capability.CodePolicyFailed, capability.CodeApprovalRequired, capability.CodeApprovalPending, capability.CodeApprovalRejected,
		capability.CodeApprovalExpired, capability.CodeApprovalConsumed, capability.CodeApprovalMismatch, capability.CodeSelfApproval,
		capability.CodeApprovalUnserializable, capability.CodeResumeMismatch, capability.CodeExecutionFailed, capability.CodeOutputInvalid,
		capability.CodeTimeout, capability.CodeCancelled, capability.CodeAuditUnavailable, capability.CodeAdapter, capability.CodeInternal,
		capability.CodeApprovalCancelled, capability.CodeApprovalSuperseded, capability.CodeApprovalStale, capability.CodeOutcomeUnknown,
	}
	if len(codes) != 26 {
		t.Errorf("%d codes; ruling 9 closes the set at 26", len(codes))
	}
	hidden := capability.Face{Code: capability.CodeInternal, Message: "The operation failed."}
	for _, c := range append(codes, "NO_SUCH_CODE") {
		e := capability.Fail(c)
		if e.Stage == "" || e.Public == "" {
			t.Errorf("%s: %+v", c, e)
		}
		f := e.Because(errors.New("secret")).Face()
		if !e.Expose && (f.Code != hidden.Code || f.Message != hidden.Message || f.Retryable) {
			t.Errorf("%s shows %+v", c, f)
		}
		if b, err := json.Marshal(e.Because(errors.New("secret"))); err != nil || strings.Contains(string(b), "secret") {
			t.Errorf("%s leaks: %s %v", c, b, err)
		}
	}
	e := capability.Refuse("Not here.")
	if again := e.Say("x").Because(errors.New("y")); e.Public != "Not here." || errors.Unwrap(e) != nil || again.Public != "x" {
		t.Error("an error can be changed through its copies")
	}
	if c := capability.CodeOf(fmt.Errorf("wrapped: %w", e)); c != capability.CodeForbidden {
		t.Errorf("code %s", c)
	}
}

func TestZeroValuesAreInvalid(t *testing.T) {
	if capability.SideEffect("").Valid() || capability.Risk("").Valid() || capability.Surface("").Valid() || (capability.Actor{}).Valid() {
		t.Error("a zero value is valid")
	}
	if !capability.SideEffect("").WriteLike() || (capability.Meta{}).Exposed(capability.SurfaceCommand) {
		t.Error("a zero value is taken for harmless")
	}
}
