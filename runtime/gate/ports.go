package gate

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"moothall/runtime/capability"
)

// Errors of a [Ledger] that the gate tells apart. Anything else is a fault of
// the store, and the step did not happen.
var (
	// ErrNotFound: no such execution or approval.
	ErrNotFound = errors.New("no such record")
	// ErrState: a compare-and-set lost; the record is in another state.
	ErrState = errors.New("the record has moved on")
	// ErrClaim: the key is taken by a request for something else.
	ErrClaim = errors.New("key is taken by another request")
)

// Ledger keeps executions, approvals, votes and the audit trail. Each method is
// one atomic step, durable when it returns nil, and writes the audit row and the
// follow-up row named in its comment in the same transaction: nothing depends on
// the caller surviving. A step that returns an error has changed nothing.
//
// Times are the caller's; the database's clock is never asked. If ctx carries a
// lease, every step is fenced by it. Implementations are safe for concurrent
// use and return copies.
type Ledger interface {
	// Claim journals e (state claimed) under its key with the requested event. If the key exists
	// with the same capability and claim hash it returns that execution and
	// fresh false, adding nothing; with another, [ErrClaim].
	Claim(ctx context.Context, e Execution, ev Event) (have Execution, fresh bool, err error)
	// Pend moves the claimed execution to suspended with the envelope and stores
	// the approval as pending. Follow-up: announce it; and expire it when its
	// deadline comes.
	Pend(ctx context.Context, p Pend) error
	// Cast stores a vote (a person's later vote replaces the earlier) if the
	// approval is pending and unexpired at v.At, else [ErrState]. The tally may
	// complete the decision; then state, decider and time are set in the same
	// step and the event's type is changed from voted to approved or rejected.
	// Follow-up when decided: show; when approved: also resume. It returns the
	// approval as it stands after.
	Cast(ctx context.Context, v Vote, ev Event) (Approval, error)
	// Start moves the claimed execution to started. With an ApprovalID the
	// approval must be approved and unexpired at s.At and becomes consumed by it
	// in the same step. Otherwise [ErrState] and nothing changes. Follow-up when consumed: show.
	Start(ctx context.Context, s Start) error
	// Finish ends an execution that is in one of f.From. Follow-up: report.
	Finish(ctx context.Context, f Finish) error
	// Close ends an approval that is in one of c.From. Follow-up: show.
	Close(ctx context.Context, c Close) (Approval, error)
	// Settle records what a person said of an execution that is
	// [Execution.Unsettled], else [ErrState]. Follow-up: report.
	Settle(ctx context.Context, executionID string, s Settlement, ev Event) error
	// Record adds an audit row that belongs to no change of state.
	Record(ctx context.Context, ev Event) error

	Execution(ctx context.Context, id string) (Execution, error)
	// Approval gives an approval with its votes.
	Approval(ctx context.Context, id string) (Approval, error)
	// Approvals lists, oldest first.
	Approvals(ctx context.Context, f ApprovalFilter) ([]Approval, error)
	// Executions lists, newest first.
	Executions(ctx context.Context, f ExecutionFilter) ([]Execution, error)
	// Events lists audit rows in the order they were written.
	Events(ctx context.Context, f EventFilter) ([]Event, error)
}

// Pend suspends an execution.
type Pend struct {
	ExecutionID string
	Approval    Approval
	Result      capability.Result
	Event       Event
}

// Start is the last step before the handler.
type Start struct {
	ExecutionID string
	ApprovalID  string // empty: nobody had to approve
	Input       json.RawMessage
	InputHash   string
	Revision    string
	At          time.Time
	Event       Event
}

// Finish ends an execution.
type Finish struct {
	ExecutionID string
	From        []ExecState
	To          ExecState
	Result      capability.Result
	At          time.Time
	Event       Event
}

// Close ends an approval without a run.
type Close struct {
	ApprovalID string
	From       []ApprovalState
	To         ApprovalState
	By         capability.Actor // who closed it; zero: time or the house did
	Comment    string
	At         time.Time
	Event      Event
}

// ApprovalFilter selects approvals; zero fields do not narrow.
type ApprovalFilter struct {
	Place    string
	Lane     string
	IDPrefix string // of the whole id, "apr_3f9"
	States   []ApprovalState
	Limit    int // 0: 100
}

// ExecutionFilter selects executions; zero fields do not narrow.
type ExecutionFilter struct {
	Place     string
	Lane      string
	IDPrefix  string
	States    []ExecState
	Unsettled bool
	Limit     int // 0: 100
}

// EventFilter selects audit rows; zero fields do not narrow.
type EventFilter struct {
	ExecutionID string
	ApprovalID  string
	Types       []EventType
	Limit       int // 0: 1000
}

// Answer is what an [Electors] says. The zero value denies.
type Answer int

// The answers.
const (
	AnswerNo         Answer = iota
	AnswerYes               // may decide this approval now
	AnswerCannotTell        // the facts could not be had: ask again, it is not a no
)

// Electors knows who may decide. It is asked inside [Gate.Decide] with facts
// fresh at that moment, not from a cache, and may block on the network.
type Electors interface {
	// MayDecide answers for one person and one approval. why is a short sentence
	// fit for the room when the answer is not yes.
	MayDecide(ctx context.Context, a Approval, approver capability.Actor) (ans Answer, why string)
}

// Groups knows who belongs to the groups that approvals name.
type Groups interface {
	// Member answers for one person and one group, now. why is a short sentence
	// fit for the room when it cannot be told.
	Member(ctx context.Context, a Approval, group string, who capability.Actor) (ans Answer, why string)
}

// People knows which identities belong to one person.
type People interface {
	// Identities lists every identity of the person who owns id, id itself and
	// removed links included. An error means that it cannot be told.
	Identities(ctx context.Context, id string) ([]string, error)
}

// Contexts makes the per-call [capability.Context].
type Contexts interface {
	Context(ctx context.Context, call capability.CallInfo, o Origin) (*capability.Context, error)
}
