package gate

import (
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// Never is the approval expiry that means no deadline.
const Never = time.Duration(1<<63 - 1)

// Config is everything a Gate needs. Ledger, Electors, People, Contexts and
// either Governance or Registry are required.
type Config struct {
	// Governance is what calls are held to. Where it is nil, Registry, Policies
	// and ToolPolicies are given to [Govern].
	Governance *Governance
	Registry   *capability.Registry
	Ledger     Ledger
	Electors   Electors
	People     People
	Contexts   Contexts
	// Groups knows who belongs to the groups that policies and tools name.
	// Without it a call that needs the yes of a group cannot be approved.
	Groups Groups
	// Policies are asked in order, before a capability's own demands.
	Policies []policy.Policy
	// ToolPolicies are asked after Policies, for the capability of that id only.
	ToolPolicies map[string][]policy.Policy

	Approvals Approvals
	Audit     Audit
	Tracing   Tracing
	Keys      Keys

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
	// VolatileLedger says that losing what waits when the process ends is meant,
	// which ends the warning about it.
	VolatileLedger bool
	// Now stamps records. Default time.Now. Deadlines of runs are real timers.
	Now func() time.Time
}

// Gate is the engine. Make it with [New].
type Gate struct {
	*engine
	ledger audited
	scope  *scope
}

// engine is what the scopes of a gate share.
type engine struct {
	cfg   Config
	gov   atomic.Pointer[Governance]
	trail *trail

	mu   sync.Mutex
	live map[string]*deadline // executions that run in this process

	ids            ids
	first, resumed map[string]any // what most starts and resumptions say of themselves; never changed
}

// New checks the configuration and reports every fault at once. It does no I/O.
func New(cfg Config) (*Gate, error) {
	var faults []error
	if cfg.Ledger == nil || cfg.Electors == nil || cfg.People == nil || cfg.Contexts == nil {
		faults = append(faults, errors.New("ledger, electors, people and contexts are required"))
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
	switch {
	case cfg.Governance == nil:
		v, err := Govern(cfg.Registry, cfg.Policies, cfg.ToolPolicies)
		if err != nil {
			faults = append(faults, err)
		}
		cfg.Governance = v
	case cfg.Registry != nil || len(cfg.Policies) > 0 || len(cfg.ToolPolicies) > 0:
		faults = append(faults, errors.New("governance and registry or policies are both given"))
	}
	faults = append(faults, cfg.Audit.faults()...)
	if cfg.Governance != nil && cfg.Groups == nil {
		for _, t := range cfg.Governance.order {
			if len(t.Meta.Approval.Groups) > 0 {
				faults = append(faults, fmt.Errorf("%q asks for the yes of a group, and nobody knows who belongs to one", t.ID))
			}
		}
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("gate: %w", errors.Join(faults...))
	}
	e := &engine{
		cfg: cfg.guarded(), live: make(map[string]*deadline), trail: newTrail(cfg.Audit),
		first: map[string]any{"attempt": 1}, resumed: map[string]any{"resumed": true},
	}
	e.gov.Store(cfg.Governance)
	return e.open(), nil
}

// open gives a view of the engine with a drain scope of its own.
func (e *engine) open() *Gate {
	s := new(scope)
	return &Gate{engine: e, scope: s, ledger: audited{Ledger: e.cfg.Ledger, trail: e.trail, scope: s, now: e.now}}
}

// Governance is what calls are held to now. It is the value that was given, by
// reference.
func (e *engine) Governance() *Governance { return e.gov.Load() }

// Swap changes what calls are held to, for this gate and all its scopes. A call
// that is under way goes on with what it began with; a resumption begins anew.
func (e *engine) Swap(v *Governance) error {
	if v == nil {
		return errors.New("gate: no governance to swap in")
	}
	e.gov.Store(v)
	return nil
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}

func (e *engine) now() time.Time { return e.cfg.Now().UTC() }

// ids makes random ids. It asks the system for the chance of many at once.
type ids struct {
	mu   sync.Mutex
	seed [32 * len(uuid.UUID{})]byte
	left int // bytes of seed that were not used
}

// next gives a prefix, an underscore and a UUID of version 4.
func (s *ids) next(prefix string) string {
	return prefix + "_" + s.uuid().String()
}

func (s *ids) uuid() (id uuid.UUID) {
	s.mu.Lock()
	if s.left == 0 {
		_, _ = rand.Read(s.seed[:]) // it never fails
		s.left = len(s.seed)
	}
	s.left -= copy(id[:], s.seed[len(s.seed)-s.left:])
	s.mu.Unlock()
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // RFC 9562
	return id
}
