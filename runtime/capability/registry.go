package capability

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Registry is an immutable set of capabilities in the order they were given.
type Registry struct {
	list     []*Capability
	byID     map[string]*Capability
	excluded []string
}

// segment is one part of a dotted id.
var segment = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)

// NewRegistry checks every capability and reports every problem in one error.
func NewRegistry(caps ...*Capability) (*Registry, error) {
	r := &Registry{byID: make(map[string]*Capability, len(caps))}
	var problems []string
	for _, c := range caps {
		if c == nil {
			problems = append(problems, "a capability is nil")
			continue
		}
		for _, p := range c.problems() {
			problems = append(problems, fmt.Sprintf("%q %s", c.ID, p))
		}
		if _, dup := r.byID[c.ID]; dup {
			problems = append(problems, fmt.Sprintf("%q is registered twice", c.ID))
			continue
		}
		r.byID[c.ID] = c
		r.list = append(r.list, c)
	}
	problems = append(problems, r.collisions()...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("capability registry has %d problems:\n- %s", len(problems), strings.Join(problems, "\n- "))
	}
	return r, nil
}

func (c *Capability) problems() []string {
	var out []string
	for s := range strings.SplitSeq(c.ID, ".") {
		if !segment.MatchString(s) {
			out = append(out, "has an id that is not lower-case words joined by dots")
			break
		}
	}
	m := c.Meta
	if strings.TrimSpace(m.Description) == "" {
		out = append(out, "has no description")
	}
	if !m.SideEffect.Valid() {
		out = append(out, "does not say its side effect")
	}
	if !m.Risk.Valid() {
		out = append(out, "does not say its risk")
	}
	for _, s := range m.Expose {
		if !s.Valid() {
			out = append(out, fmt.Sprintf("is exposed on an unknown surface %q", s))
		}
	}
	if m.Timeout < 0 || m.Approval.ExpiresIn < 0 || m.Approval.Quorum < 0 {
		out = append(out, "has a negative time-out, expiry or quorum")
	}
	if m.Retry.Max < 0 || m.Retry.Backoff < 0 {
		out = append(out, "has a negative retry count or back-off")
	}
	if m.Retry.Max > 0 && m.SideEffect.WriteLike() && !m.Idempotent {
		out = append(out, "would be retried though it writes and is not declared idempotent (SI-11)")
	}
	out = append(out, m.nameProblems()...)
	if len(c.InputSchema) == 0 && c.problem == nil {
		out = append(out, "has no input schema")
	}
	if c.problem != nil {
		out = append(out, c.problem.Error())
	}
	return out
}

// ErrNoCapability is returned by [Registry.Get] for an unknown id.
var ErrNoCapability = errors.New("no such capability")

// Get finds a capability by id.
func (r *Registry) Get(id string) (*Capability, error) {
	if c, ok := r.byID[id]; ok {
		return c, nil
	}
	return nil, ErrNoCapability
}

// All lists the capabilities in registration order.
func (r *Registry) All() []*Capability { return slices.Clone(r.list) }

// Model surfaces are where names reach a protocol with rules of its own.
func modelSurfaces() []Surface { return []Surface{SurfaceAgent, SurfaceMCP} }

// toolName is what such protocols take as a name.
var toolName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (m Meta) nameProblems() []string {
	var out []string
	for _, s := range slices.Sorted(maps.Keys(m.Names)) {
		if !s.Valid() {
			out = append(out, fmt.Sprintf("has a name for an unknown surface %q", s))
		}
		if !toolName.MatchString(m.Names[s]) {
			out = append(out, fmt.Sprintf("has a name for %s that is not 1 to 64 letters, digits, _ and -", s))
		}
	}
	if m.Annotations != nil {
		if _, err := json.Marshal(m.Annotations); err != nil {
			out = append(out, "has annotations that are not JSON")
		}
	}
	if slices.ContainsFunc(m.Approval.Groups, func(g string) bool { return strings.TrimSpace(g) == "" }) {
		out = append(out, "asks for the yes of a group without a name")
	}
	return out
}

// collisions finds names that two tools share on a surface on which both are
// exposed to models.
func (r *Registry) collisions() []string {
	var out []string
	for _, s := range modelSurfaces() {
		by := make(map[string]string, len(r.list))
		for _, c := range r.list {
			if !c.Meta.Exposed(s) {
				continue
			}
			n := c.Name(s)
			if other, taken := by[n]; taken {
				out = append(out, fmt.Sprintf("%q and %q are both called %q on %s", other, c.ID, n, s))
				continue
			}
			by[n] = c.ID
			if _, own := c.Meta.Names[s]; !own && !toolName.MatchString(n) {
				out = append(out, fmt.Sprintf("%q needs a name of its own on %s: its id is too long for one", c.ID, s))
			}
		}
	}
	return out
}
