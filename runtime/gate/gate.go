package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	// ToolPolicies are asked after Policies, for the capability of that id only.
	ToolPolicies map[string][]policy.Policy

	// Timeout bounds a run. Default 30 s.
	Timeout time.Duration
	// PolicyTimeout bounds one batch of policies. Default 5 s.
	PolicyTimeout time.Duration
	// PolicyConcurrency is how many tools of a listing are evaluated at once.
	// Default 16.
	PolicyConcurrency int
	// DiscoveryBudget bounds a whole listing. Default 30 s.
	DiscoveryBudget time.Duration
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
	policies []policy.Policy // the gate's, then its own
	revision string
}

// New checks the configuration and reports every fault at once.
func New(cfg Config) (*Gate, error) {
	var faults []error
	if cfg.Registry == nil || cfg.Ledger == nil || cfg.Electors == nil || cfg.People == nil || cfg.Contexts == nil {
		faults = append(faults, errors.New("registry, ledger, electors, people and contexts are required"))
	}
	if cfg.Timeout < 0 || cfg.PolicyTimeout < 0 || cfg.ApprovalExpiry < 0 || cfg.DiscoveryBudget < 0 || cfg.PolicyConcurrency < 0 {
		faults = append(faults, errors.New("time-outs, expiry, budget and concurrency must not be negative"))
	}
	if cfg.PolicyConcurrency == 0 {
		cfg.PolicyConcurrency = 16
	}
	cfg.DiscoveryBudget = orDefault(cfg.DiscoveryBudget, 30*time.Second)
	cfg.Timeout = orDefault(cfg.Timeout, 30*time.Second)
	cfg.PolicyTimeout = orDefault(cfg.PolicyTimeout, 5*time.Second)
	cfg.ApprovalExpiry = orDefault(cfg.ApprovalExpiry, 15*time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	g := &Gate{cfg: cfg, tools: make(map[string]*tool), live: make(map[string]context.CancelCauseFunc)}
	faults = append(faults, policyFaults(cfg)...)
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

func policyFaults(cfg Config) []error {
	var faults []error
	all := slices.Clone(cfg.Policies)
	for _, id := range slices.Sorted(maps.Keys(cfg.ToolPolicies)) {
		all = append(all, cfg.ToolPolicies[id]...)
		if cfg.Registry == nil {
			continue
		}
		if _, err := cfg.Registry.Get(id); err != nil {
			faults = append(faults, fmt.Errorf("policies for %q: %w", id, err))
		}
	}
	for _, p := range all {
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
	return faults
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
	policies := slices.Concat(g.cfg.Policies, g.cfg.ToolPolicies[c.ID])
	rev, err := revisionOf(c, policies)
	if err != nil {
		return nil, err
	}
	return &tool{Capability: c, in: in, out: out, policies: policies, revision: rev}, nil
}

// revisionOf is the contract revision: two hashes joined by a dot. The first
// covers what makes an old yes meaningless when it changes (schemas, side
// effect, risk, handler version), the second also what is re-checked anyway
// (exposure, gate, policies). The description is in neither.
func revisionOf(c *capability.Capability, policies []policy.Policy) (string, error) {
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
	manifest := make([]stage, 0, len(policies))
	for _, p := range policies {
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
