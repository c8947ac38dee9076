package capability

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func handler(context.Context, *Context, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(`1`), nil
}

func tool(id string, change func(*Meta)) *Capability {
	m := Meta{Description: "d", SideEffect: SideEffectRead, Risk: RiskLow, Expose: []Surface{SurfaceAgent, SurfaceMCP}}
	if change != nil {
		change(&m)
	}
	return FromSchema(id, m, json.RawMessage(`{}`), nil, handler)
}

func TestR015Collisions(t *testing.T) {
	mcp := func(name string) func(*Meta) {
		return func(m *Meta) { m.Names = map[Surface]string{SurfaceMCP: name} }
	}
	people := func(m *Meta) { m.Expose = []Surface{SurfaceCommand, SurfaceDirect} }
	for name, tt := range map[string]struct {
		caps []*Capability
		want []string
	}{
		"R015 one name for two":           {[]*Capability{tool("a.b", nil), tool("a_b", nil)}, []string{`"a.b" and "a_b" are both called "a_b" on agent`, `on mcp`}},
		"R017 a name of its own":          {[]*Capability{tool("x", mcp("a_b")), tool("a.b", nil)}, []string{`"x" and "a.b" are both called "a_b" on mcp`}},
		"not where they are not exposed":  {[]*Capability{tool("a.b", people), tool("a_b", nil)}, nil},
		"told apart by a name":            {[]*Capability{tool("a.b", func(m *Meta) { m.Names = map[Surface]string{SurfaceAgent: "x", SurfaceMCP: "x"} }), tool("a_b", nil)}, nil},
		"a name no protocol takes":        {[]*Capability{tool("a", mcp("a b"))}, []string{"1 to 64 letters"}},
		"an empty name":                   {[]*Capability{tool("a", mcp(""))}, []string{"1 to 64 letters"}},
		"an id too long for a name":       {[]*Capability{tool(strings.Repeat("a", 65), nil)}, []string{"too long"}},
		"an unknown surface":              {[]*Capability{tool("a", func(m *Meta) { m.Names = map[Surface]string{"x": "a"} })}, []string{"unknown surface"}},
		"annotations that are no JSON":    {[]*Capability{tool("a", func(m *Meta) { m.Annotations = map[string]any{"x": func() {}} })}, []string{"not JSON"}},
		"a group without a name":          {[]*Capability{tool("a", func(m *Meta) { m.Approval.Groups = []string{" "} })}, []string{"group without a name"}},
		"R014 everything in one error":    {[]*Capability{tool("a", mcp("")), tool("A", nil), tool("a.b", nil), tool("a_b", nil)}, []string{"4 problems", "1 to 64", "lower-case", "both called"}},
		"R005 exposed nowhere is allowed": {[]*Capability{tool("a", func(m *Meta) { m.Expose = nil })}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewRegistry(tt.caps...)
			if (err == nil) != (tt.want == nil) {
				t.Fatalf("got %v", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v does not say %q", err, w)
				}
			}
		})
	}
}

func TestR021Filter(t *testing.T) {
	r, err := NewRegistry(
		tool("a", func(m *Meta) { m.Tags = []string{"x", "y"} }),
		tool("b", func(m *Meta) { m.SideEffect, m.Risk = SideEffectWrite, RiskHigh }),
		tool("c", func(m *Meta) { m.Expose, m.Tags = nil, []string{"y"} }),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		q    Query
		want []string
	}{
		"nothing":       {Query{}, []string{"a", "b", "c"}},
		"a surface":     {Query{Surface: SurfaceMCP}, []string{"a", "b"}},
		"any tag":       {Query{Tags: []string{"x", "y"}}, []string{"a", "c"}},
		"no tag at all": {Query{Tags: []string{}}, nil},
		"a side effect": {Query{SideEffect: []SideEffect{SideEffectWrite, SideEffectExternal}}, []string{"b"}},
		"a risk":        {Query{Risk: []Risk{RiskLow}}, []string{"a", "c"}},
		"all together":  {Query{Surface: SurfaceAgent, Risk: []Risk{RiskLow}}, []string{"a"}},
		"a say":         {Query{Is: func(id string, _ Meta) bool { return id != "a" }}, []string{"b", "c"}},
	} {
		if got := r.Filter(tt.q).Inspect().IDs; !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v; want %v", name, got, tt.want)
		}
	}
	in := r.Filter(Query{Tags: []string{"y"}}).Filter(Query{Surface: SurfaceMCP}).Inspect()
	if !slices.Equal(in.IDs, []string{"a"}) || !slices.Equal(in.Excluded, []string{"b", "c"}) {
		t.Errorf("filters do not compose: %+v", in)
	}
	in = r.Inspect() // R002, R005: and the original is as it was
	if !slices.Equal(in.Unexposed, []string{"c"}) || len(in.Excluded) != 0 || in.ByName[SurfaceMCP]["a"] != "a" || len(in.ByName[SurfaceMCP]) != 2 {
		t.Errorf("inspected: %+v", in)
	}
	if _, err := r.Filter(Query{Tags: []string{"x"}}).Get("b"); err == nil {
		t.Error("what was left out is still there")
	}
}

func TestUnwrap(t *testing.T) {
	for name, tt := range map[string]struct {
		r    Result
		code Code
	}{
		"completed": {Result{Status: StatusCompleted, Output: json.RawMessage(`1`)}, ""},
		"waiting":   {Result{Status: StatusApprovalRequired, ApprovalID: "apr_1"}, CodeApprovalRequired},
		"failed":    {Result{Status: StatusFailed, Error: Fail(CodeForbidden)}, CodeForbidden},
		"cancelled": {Result{Status: StatusCancelled, Error: Fail(CodeTimeout)}, CodeTimeout},
		"nonsense":  {Result{}, CodeInternal},
	} {
		out, err := tt.r.Unwrap()
		if CodeOf(err) != tt.code || (err == nil) != (out != nil) {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}
