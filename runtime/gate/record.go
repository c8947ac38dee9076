package gate

import (
	"encoding/json"
	"slices"
	"time"

	"moothall/runtime/capability"
)

// Origin is the opaque place an answer goes back to. The gate carries it, binds
// it into the approval's digest and never reads it.
type Origin struct {
	// Place groups calls so that they can be listed together (a room).
	Place string `json:"place,omitempty"`
	// Lane orders what follows: follow-up rows of equal lane are handled one at
	// a time (a conversation).
	Lane string `json:"lane,omitempty"`
	// Ref is whatever the surface needs to find its way back.
	Ref string `json:"ref,omitempty"`
}

// ExecState is how far an execution has come.
type ExecState string

// The states of an execution. Suspended, Completed, Failed, Cancelled and
// Unknown are ends; an Unknown one may still be settled by a person.
const (
	ExecClaimed   ExecState = "claimed"   // under its key, nothing decided
	ExecSuspended ExecState = "suspended" // waits for a human; the resumption is an execution of its own
	ExecStarted   ExecState = "started"   // the handler may have been entered
	ExecCompleted ExecState = "completed"
	ExecFailed    ExecState = "failed"
	ExecCancelled ExecState = "cancelled"
	ExecUnknown   ExecState = "unknown" // started, and nobody saw how it ended
)

// Execution is one claimed request: the journal's entry.
type Execution struct {
	ID            string
	Key           string // idempotency key, unique
	CapabilityID  string
	ClaimHash     string // SHA-256 of the input as it came, hex
	Input         json.RawMessage
	InputHash     string // SHA-256 of the canonical validated input, hex; empty before start
	Revision      string // contract revision in force at the start
	Actor         capability.Actor
	Surface       capability.Surface
	Origin        Origin
	CorrelationID string
	ApprovalID    string // the approval it runs under, or the one it was suspended for
	Trace         string // W3C traceparent of the call, empty if it is not traced
	State         ExecState
	Result        *capability.Result // the envelope, once there is one
	CreatedAt     time.Time
	StartedAt     time.Time
	FinishedAt    time.Time
	Settled       *Settlement
}

// Unsettled reports whether a person still has to say what really happened.
func (e Execution) Unsettled() bool {
	if e.Settled != nil {
		return false
	}
	return e.State == ExecUnknown || (e.Result != nil && e.Result.Effect == capability.EffectUnknown)
}

// Settlement is what a person said of an unknown outcome.
type Settlement struct {
	By   capability.Actor `json:"by"`
	Done bool             `json:"done"` // it did take effect
	Note string           `json:"note,omitempty"`
	At   time.Time        `json:"at"`
}

// ApprovalState is how an approval stands.
type ApprovalState string

// The states of an approval. Pending leads to Approved or to an end, Approved
// to Consumed or another end; nothing leaves an end.
const (
	ApprovalPending    ApprovalState = "pending"
	ApprovalApproved   ApprovalState = "approved"
	ApprovalRejected   ApprovalState = "rejected"
	ApprovalExpired    ApprovalState = "expired"
	ApprovalCancelled  ApprovalState = "cancelled"
	ApprovalSuperseded ApprovalState = "superseded"
	ApprovalConsumed   ApprovalState = "consumed"
	ApprovalStale      ApprovalState = "stale"
)

// Open reports whether the approval can still lead to a run.
func (s ApprovalState) Open() bool { return s == ApprovalPending || s == ApprovalApproved }

// Requirements is what it takes to approve.
type Requirements struct {
	Types []string `json:"types"`
	// Groups are named groups; each needs a yes from at least one member. One
	// person's yes counts for every group they are in.
	Groups []string `json:"groups"`
	// Quorum is how many different people must say yes; at least one. Everybody
	// who may decide has a veto: one no rejects, whatever was said before.
	Quorum int `json:"quorum"`
}

// Approval is the durable question put to people.
type Approval struct {
	ID            string
	ExecutionID   string // the execution that was suspended
	CapabilityID  string
	Revision      string // contract revision when it was asked
	Actor         capability.Actor
	Surface       capability.Surface
	Origin        Origin
	CorrelationID string
	Trace         string          // W3C traceparent of the call that asked
	Input         json.RawMessage // canonical, validated: byte for byte what will run
	InputHash     string
	Digest        string // binds everything that must not change; see [Digest]
	Reasons       []string
	Requirements  Requirements
	SideEffect    capability.SideEffect
	Risk          capability.Risk
	State         ApprovalState
	RequestedAt   time.Time
	ExpiresAt     time.Time // zero: never
	// DecidedAt and DecidedBy are set by the vote that completed the decision,
	// or by whoever closed it.
	DecidedAt time.Time
	DecidedBy capability.Actor
	Comment   string
	// ConsumedBy is the execution that used it up.
	ConsumedBy string
	Votes      []Vote // in the order they were cast
}

// ExpiredAt reports whether the deadline has come; at equality it has.
func (a Approval) ExpiredAt(now time.Time) bool {
	return !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt)
}

// Vote is one person's answer to one approval.
type Vote struct {
	ApprovalID string           `json:"-"`
	Person     string           `json:"person"` // one row per person: see [People]
	Actor      capability.Actor `json:"actor"`
	Yes        bool             `json:"yes"`
	Comment    string           `json:"comment,omitempty"`
	Cause      string           `json:"cause,omitempty"` // what carried it: an event id
	// Groups are those of the approval's groups that the person was in when they
	// voted. Kept with the vote: who leaves a group later did speak for it.
	Groups []string  `json:"groups,omitempty"`
	At     time.Time `json:"at"`
}

// Verdict is what the votes so far amount to.
type Verdict string

// The verdicts.
const (
	VerdictOpen     Verdict = "open"
	VerdictApproved Verdict = "approved"
	VerdictRejected Verdict = "rejected"
)

// Tally weighs votes, at most one per person, against r. One no rejects; the
// quorum of different people approves if a member of each group is among them;
// anything else is open. Every [Ledger] uses it, so that no two stores can
// disagree.
func Tally(r Requirements, votes []Vote) Verdict {
	yes := make(map[string]bool, len(votes))
	missing := slices.Clone(r.Groups)
	for _, v := range votes {
		if !v.Yes {
			return VerdictRejected
		}
		if v.Person != "" {
			yes[v.Person] = true
			missing = slices.DeleteFunc(missing, func(g string) bool { return slices.Contains(v.Groups, g) })
		}
	}
	if len(yes) >= max(r.Quorum, 1) && len(missing) == 0 {
		return VerdictApproved
	}
	return VerdictOpen
}

// EventType names what an audit row records.
type EventType string

// The events. Their data holds ids, hashes, classes and durations, never
// arguments or output.
const (
	// EventDiscovered is a listing: count, surface and a digest of what was listed.
	EventDiscovered        EventType = "capabilities.discovered"
	EventRequested         EventType = "capability.requested"
	EventDenied            EventType = "capability.denied"
	EventApprovalRequested EventType = "capability.approval_requested"
	EventVoted             EventType = "capability.voted"
	EventApproved          EventType = "capability.approved"
	EventRejected          EventType = "capability.rejected"
	EventDecisionRefused   EventType = "capability.decision_refused"
	EventExpired           EventType = "capability.expired"
	EventApprovalCancelled EventType = "capability.approval_cancelled"
	EventSuperseded        EventType = "capability.superseded"
	EventStale             EventType = "capability.stale"
	EventStarted           EventType = "capability.started"
	EventRetried           EventType = "capability.retried"
	EventCompleted         EventType = "capability.completed"
	EventFailed            EventType = "capability.failed"
	EventCancelled         EventType = "capability.cancelled"
	EventUnknown           EventType = "capability.unknown"
	EventSettled           EventType = "capability.settled"
)

// Event is one audit row.
type Event struct {
	Type          EventType          `json:"type"`
	At            time.Time          `json:"at"`
	Surface       capability.Surface `json:"surface"`
	Actor         capability.Actor   `json:"actor"` // only id and kind are kept
	ExecutionID   string             `json:"execution_id,omitempty"`
	ApprovalID    string             `json:"approval_id,omitempty"`
	CapabilityID  string             `json:"capability_id,omitempty"`
	CorrelationID string             `json:"correlation_id,omitempty"`
	InputHash     string             `json:"input_hash,omitempty"`
	Data          map[string]any     `json:"data,omitempty"`
}
