package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// Never is the approval expiry that means no deadline.
const Never = time.Duration(1<<63 - 1)

// Config is everything a Gate needs. Registry, Ledger, Electors, People and
// Contexts are required.
type Config struct {
	Registry *capability.Registry
	Ledger   Ledger
	Electors Electors
	People   People
	Contexts Contexts
	// Policies are asked in order, before a capability's own demands.
	Policies []policy.Policy

	// Timeout bounds a run. Default 30 s.
	Timeout time.Duration
	// PolicyTimeout bounds one batch of policies. Default 5 s.
	PolicyTimeout time.Duration
	// ApprovalExpiry is how long a question stays open. Default 15 min; [Never]
	// means no deadline; negative is an error.
	ApprovalExpiry time.Duration
	// AllowSelfApproval lets askers decide their own calls. Default false.
	AllowSelfApproval bool
	// Now stamps records. Default time.Now. Deadlines of runs are real timers.
	Now func() time.Time
}

// Gate is the engine. Make it with [New].
type Gate struct {
	cfg   Config
	tools map[string]*tool
	order []string

	mu   sync.Mutex
	live map[string]context.CancelCauseFunc // executions that run in this process
}

// tool is a capability with what the gate worked out about it.
type tool struct {
	*capability.Capability
	in, out  *jsonschema.Schema
	revision string
}

// New checks the configuration and reports every fault at once.
func New(cfg Config) (*Gate, error) {
	var faults []error
	if cfg.Registry == nil || cfg.Ledger == nil || cfg.Electors == nil || cfg.People == nil || cfg.Contexts == nil {
		faults = append(faults, errors.New("registry, ledger, electors, people and contexts are required"))
	}
	if cfg.Timeout < 0 || cfg.PolicyTimeout < 0 || cfg.ApprovalExpiry < 0 {
		faults = append(faults, errors.New("time-outs and expiry must not be negative"))
	}
	cfg.Timeout = orDefault(cfg.Timeout, 30*time.Second)
	cfg.PolicyTimeout = orDefault(cfg.PolicyTimeout, 5*time.Second)
	cfg.ApprovalExpiry = orDefault(cfg.ApprovalExpiry, 15*time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Gate{cfg: cfg, tools: make(map[string]*tool), live: make(map[string]context.CancelCauseFunc)}
	for _, p := range cfg.Policies {
		if p == nil || strings.TrimSpace(p.Name()) == "" {
			faults = append(faults, errors.New("a policy has no name"))
			continue
		}
		for _, ph := range p.Phases() {
			if !ph.Valid() {
				faults = append(faults, fmt.Errorf("policy %q names an unknown phase %q", p.Name(), ph))
			}
		}
	}
	if cfg.Registry != nil && len(faults) == 0 {
		for _, c := range cfg.Registry.All() {
			t, err := g.prepare(c)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			g.tools[c.ID] = t
			g.order = append(g.order, c.ID)
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("gate: %w", errors.Join(faults...))
	}
	return g, nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

func (g *Gate) prepare(c *capability.Capability) (*tool, error) {
	in, err := compile(c.ID, c.InputSchema)
	if err != nil {
		return nil, err
	}
	out, err := compile(c.ID, c.OutputSchema)
	if err != nil {
		return nil, err
	}
	rev, err := g.revisionOf(c)
	if err != nil {
		return nil, err
	}
	return &tool{Capability: c, in: in, out: out, revision: rev}, nil
}

// revisionOf is the contract revision: two hashes joined by a dot. The first
// covers what makes an old yes meaningless when it changes (schemas, side
// effect, risk, handler version), the second also what is re-checked anyway
// (exposure, gate, policies). The description is in neither.
func (g *Gate) revisionOf(c *capability.Capability) (string, error) {
	core, err := json.Marshal(map[string]any{
		"in": c.InputSchema, "out": c.OutputSchema, "side_effect": c.Meta.SideEffect,
		"risk": c.Meta.Risk, "version": c.Meta.Version,
	})
	if err != nil {
		return "", fmt.Errorf("%q: schema is not JSON: %w", c.ID, err)
	}
	type stage struct {
		Name   string         `json:"name"`
		Phases []policy.Phase `json:"phases"`
	}
	manifest := make([]stage, 0, len(g.cfg.Policies))
	for _, p := range g.cfg.Policies {
		manifest = append(manifest, stage{p.Name(), p.Phases()})
	}
	full, err := json.Marshal(map[string]any{
		"core": HashOf(core), "expose": c.Meta.Expose, "approval": c.Meta.Approval, "policies": manifest,
	})
	if err != nil {
		return "", fmt.Errorf("%q: %w", c.ID, err)
	}
	return HashOf(core) + "." + HashOf(full), nil
}

// core is the part of a revision whose change makes an approval stale.
func core(revision string) string {
	c, _, _ := strings.Cut(revision, ".")
	return c
}

func (g *Gate) now() time.Time { return g.cfg.Now().UTC() }

func newID(prefix string) string { return prefix + "_" + uuid.NewString() }

// Descriptor is what a listing tells of a tool.
type Descriptor struct {
	ID          string
	Description string
	InputSchema json.RawMessage
	SideEffect  capability.SideEffect
	Risk        capability.Risk
	Tags        []string
	// RequiresApproval: the tool, or a policy for this actor, asks for a yes.
	RequiresApproval bool
}

// Describe lists what actor may be offered on surface, in registration order.
// It is presentation only: every call is checked again.
func (g *Gate) Describe(ctx context.Context, s capability.Surface, actor capability.Actor) ([]Descriptor, error) {
	if !actor.Valid() {
		return nil, capability.Fail(capability.CodeUnauthenticated)
	}
	var out []Descriptor
	for _, id := range g.order {
		t := g.tools[id]
		if !t.Meta.Exposed(s) {
			continue
		}
		o := policy.Evaluate(ctx, g.cfg.Policies, policy.Request{
			Phase: policy.PhaseDiscovery, CapabilityID: id, Meta: t.Meta, Surface: s, Actor: actor,
		}, g.cfg.PolicyTimeout)
		if o.Stance == policy.StanceDeny || o.Stance == policy.StanceHide {
			continue
		}
		out = append(out, Descriptor{
			ID: id, Description: t.Meta.Description, InputSchema: append(json.RawMessage(nil), t.InputSchema...),
			SideEffect: t.Meta.SideEffect, Risk: t.Meta.Risk, Tags: append([]string(nil), t.Meta.Tags...),
			RequiresApproval: t.Meta.Approval.Required || o.Stance == policy.StanceRequireApproval,
		})
	}
	return out, ctx.Err()
}
