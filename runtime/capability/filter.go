package capability

import "slices"

// Query selects capabilities. A nil field does not narrow; an empty one matches
// nothing; what is given must hold all together.
type Query struct {
	Surface    Surface // exposed there; empty does not narrow
	Tags       []string
	SideEffect []SideEffect
	Risk       []Risk
	// Is has a say of its own, if set.
	Is func(id string, m Meta) bool
}

// Match reports whether q selects a tool.
func (q Query) Match(id string, m Meta) bool {
	switch {
	case q.Surface != "" && !m.Exposed(q.Surface):
		return false
	case q.Tags != nil && !slices.ContainsFunc(q.Tags, func(t string) bool { return slices.Contains(m.Tags, t) }):
		return false
	case q.SideEffect != nil && !slices.Contains(q.SideEffect, m.SideEffect):
		return false
	case q.Risk != nil && !slices.Contains(q.Risk, m.Risk):
		return false
	}
	return q.Is == nil || q.Is(id, m)
}

// Filter gives a registry of what q selects, in the same order. r is unchanged.
// It composes a house; it is no authority.
func (r *Registry) Filter(q Query) *Registry {
	out := &Registry{byID: make(map[string]*Capability), excluded: slices.Clone(r.excluded)}
	for _, c := range r.list {
		if !q.Match(c.ID, c.Meta) {
			out.excluded = append(out.excluded, c.ID)
			continue
		}
		out.list = append(out.list, c)
		out.byID[c.ID] = c
	}
	return out
}

// Inspection is what a registry holds, for people and tooling.
type Inspection struct {
	IDs       []string // in registration order
	Unexposed []string // reachable nowhere
	Excluded  []string // left out by [Registry.Filter]
	// ByName is the id behind each tool name, per model surface.
	ByName map[Surface]map[string]string
}

// Inspect lists what the registry holds.
func (r *Registry) Inspect() Inspection {
	in := Inspection{Excluded: slices.Clone(r.excluded), ByName: make(map[Surface]map[string]string)}
	for _, s := range modelSurfaces() {
		in.ByName[s] = make(map[string]string)
	}
	for _, c := range r.list {
		in.IDs = append(in.IDs, c.ID)
		if len(c.Meta.Expose) == 0 {
			in.Unexposed = append(in.Unexposed, c.ID)
		}
		for s, names := range in.ByName {
			if c.Meta.Exposed(s) {
				names[c.Name(s)] = c.ID
			}
		}
	}
	return in
}
