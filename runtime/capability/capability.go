// Package capability is the vocabulary that every tool, every asker and the
// gate share: what a tool is and says of itself, on whose authority a call
// runs, how it ends, and what went wrong.
//
// It decides nothing and runs nothing. A [Capability] cannot be called from
// outside the gate by accident: [Capability.Run] is only reachable through a
// [Registry], and no getter of the gate hands one out. A zero [SideEffect] or
// [Risk] is invalid, so a tool that forgot to classify itself does not start.
//
// Values are plain data and safe for concurrent reading; handlers must be safe
// for concurrent calls.
package capability

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// SideEffect says what a tool does to the world. The zero value is invalid.
type SideEffect string

// The side effects, mildest first. Write, Destructive and External are
// write-like: they are never run twice unless declared idempotent.
const (
	SideEffectNone        SideEffect = "none"        // a pure computation
	SideEffectRead        SideEffect = "read"        // reads, changes nothing
	SideEffectWrite       SideEffect = "write"       // creates or updates
	SideEffectDestructive SideEffect = "destructive" // deletes, or cannot be undone
	SideEffectExternal    SideEffect = "external"    // leaves the system: mail, payment
)

// Valid reports whether s is one of the constants.
func (s SideEffect) Valid() bool {
	switch s {
	case SideEffectNone, SideEffectRead, SideEffectWrite, SideEffectDestructive, SideEffectExternal:
		return true
	}
	return false
}

// WriteLike reports whether s may change something. An invalid value counts as
// write-like: what is not known to be harmless is not.
func (s SideEffect) WriteLike() bool { return s != SideEffectNone && s != SideEffectRead }

// Risk is how bad a mistake would be, independent of the side effect: reading a
// salary is a read of high risk. The zero value is invalid.
type Risk string

// The risks, lowest first.
const (
	RiskLow      Risk = "low"
	RiskMedium   Risk = "medium"
	RiskHigh     Risk = "high"
	RiskCritical Risk = "critical"
)

// Valid reports whether r is one of the constants.
func (r Risk) Valid() bool {
	switch r {
	case RiskLow, RiskMedium, RiskHigh, RiskCritical:
		return true
	}
	return false
}

// Surface is where a call came from. A tool is reachable on a surface only when
// its Meta.Expose names it.
type Surface string

// The surfaces. Agent and MCP are model surfaces: their arguments are written
// by a model.
const (
	SurfaceCommand  Surface = "command"
	SurfaceAgent    Surface = "agent"
	SurfaceMCP      Surface = "mcp"
	SurfaceHTTP     Surface = "http"
	SurfaceSchedule Surface = "schedule"
	SurfaceWebhook  Surface = "webhook"
	SurfaceDirect   Surface = "direct"
	SurfaceTest     Surface = "test"
)

// Surfaces lists every surface in a fixed order.
func Surfaces() []Surface {
	return []Surface{
		SurfaceCommand, SurfaceAgent, SurfaceMCP, SurfaceHTTP,
		SurfaceSchedule, SurfaceWebhook, SurfaceDirect, SurfaceTest,
	}
}

// Valid reports whether s is one of the constants.
func (s Surface) Valid() bool {
	return slices.Contains(Surfaces(), s)
}

// Approval is a tool's own demand for a human yes on every call.
type Approval struct {
	Required bool
	// Type names the kind of sign-off, free-form ("manager"). Optional.
	Type string
	// ExpiresIn is how long the question stays open. Zero: the gate's default.
	ExpiresIn time.Duration
	// Quorum is how many people must say yes. Zero means one.
	Quorum int
	// Groups are named groups of each of which at least one member must say yes.
	Groups []string
}

// Retry says how often a failed run is tried again within one execution. The
// zero value: never.
type Retry struct {
	// Max is how many attempts may follow the first.
	Max int
	// Backoff is the wait before the second attempt, doubled for each after, with
	// up to half of it taken off by chance. Zero: 250 ms.
	Backoff time.Duration
	// On, if set, has the last word: false, or a panic, means no retry.
	On func(*Error) bool
}

// Meta is what a tool says of itself. All of it is checked at start.
type Meta struct {
	// Description is read by people and by models; required.
	Description string
	// Expose lists the surfaces the tool can be reached on. Empty: nowhere.
	Expose     []Surface
	SideEffect SideEffect // required
	Risk       Risk       // required
	Tags       []string
	// Timeout bounds one run. Zero: the gate's default (30 s).
	Timeout time.Duration
	// Idempotent promises that running twice equals running once. Only such
	// tools, and those that write nothing, are run again after a crash.
	Idempotent bool
	// Retry is tried on errors that say they are retryable. Refused at start for
	// a write-like tool that is not Idempotent.
	Retry    Retry
	Approval Approval
	// Version is the handler's. A change makes waiting approvals stale.
	Version string
	// RedactOutput, if set, is applied to validated output before it leaves the
	// gate. It must be pure; an error or a panic withholds the output.
	RedactOutput func(json.RawMessage) (json.RawMessage, error)
	// RedactInput, if set, is what approvers see instead of the arguments.
	RedactInput func(json.RawMessage) (json.RawMessage, error)
	// Names is what the tool is called on a surface, where that is not its id with
	// each dot made an underscore; see [Capability.Name]. A name is 1 to 64
	// letters, digits, underscores and hyphens.
	Names map[Surface]string
	// Annotations are handed on to MCP clients as they are. Must be JSON objects'
	// values; they promise nothing and are no part of any decision.
	Annotations map[string]any
}

// Exposed reports whether the tool is reachable on s.
func (m Meta) Exposed(s Surface) bool {
	return slices.Contains(m.Expose, s)
}

// Handler runs a tool with input that was validated and is canonical JSON, and
// returns its output as JSON. ctx ends at the tool's time-out or when the call
// is cancelled; it carries no database transaction.
type Handler func(ctx context.Context, rt *Context, input json.RawMessage) (json.RawMessage, error)

// Capability is one tool. Make it with [Define] or [FromSchema].
type Capability struct {
	ID   string // dotted: room.topic.set
	Meta Meta
	// InputSchema and OutputSchema are JSON Schemas (draft 2020-12). A nil
	// OutputSchema means that output is not checked.
	InputSchema  json.RawMessage
	OutputSchema json.RawMessage
	// Before, if set, is the application's own say, for every caller and every
	// attempt alike, right before the handler: an error ends the attempt and the
	// handler is not entered. Return [Refuse] for a refusal that changed nothing.
	// ctx and rt are the handler's; input is a copy. It must be safe for
	// concurrent use.
	Before  func(ctx context.Context, rt *Context, input json.RawMessage) error
	handler Handler
	problem error // found while it was made; reported by [NewRegistry]
}

// Run calls Before, then the handler. Only the gate calls it.
func (c *Capability) Run(ctx context.Context, rt *Context, input json.RawMessage) (json.RawMessage, error) {
	if c.Before != nil {
		if err := c.Before(ctx, rt, slices.Clone(input)); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return c.handler(ctx, rt, input)
}

// Name is what the tool is called on s: the name it gives itself there, else its
// id with each dot made an underscore.
func (c *Capability) Name(s Surface) string {
	if n, ok := c.Meta.Names[s]; ok {
		return n
	}
	return strings.ReplaceAll(c.ID, ".", "_")
}

// Clone gives a copy that shares nothing that can be changed with c, but for the
// values of Meta.Annotations and the functions.
func (c *Capability) Clone() *Capability {
	d := *c
	d.InputSchema, d.OutputSchema = slices.Clone(c.InputSchema), slices.Clone(c.OutputSchema)
	m := &d.Meta
	m.Expose, m.Tags, m.Approval.Groups = slices.Clone(m.Expose), slices.Clone(m.Tags), slices.Clone(m.Approval.Groups)
	m.Names, m.Annotations = maps.Clone(m.Names), maps.Clone(m.Annotations)
	return &d
}

// FromSchema makes a capability whose schemas arrive at run time. outputSchema
// may be nil. Faults are reported by [NewRegistry].
func FromSchema(id string, meta Meta, inputSchema, outputSchema json.RawMessage, h Handler) *Capability {
	c := &Capability{ID: id, Meta: meta, InputSchema: inputSchema, OutputSchema: outputSchema, handler: h}
	if h == nil {
		c.problem = fmt.Errorf("has no handler")
	}
	return c
}
