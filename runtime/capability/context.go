package capability

import "github.com/rs/zerolog"

// Context is what a handler may know of the call it serves. It is made fresh
// for each call and must not be kept beyond it. It carries no client, no store
// and no gate: tools get their collaborators from their constructor.
type Context struct {
	User    User
	Session Session
	Call    CallInfo
	Logger  zerolog.Logger
}

// User is the person on whose authority the call runs.
type User struct {
	MatrixUserID string // full Matrix ID, empty if the actor has none
}

// Session is the conversation the call belongs to.
type Session struct {
	ID        string // thread root event id, else the correlation id
	Client    string // matrix, http, mcp, schedule, cli or test
	RequestID string // the correlation id: on Matrix the asking event's id
	RoomID    string // empty outside a room
}

// CallInfo identifies the call.
type CallInfo struct {
	ExecutionID    string
	CapabilityID   string
	Surface        Surface
	Actor          Actor
	Approval       *ApprovalInfo // nil when nobody had to approve
	CorrelationID  string
	IdempotencyKey string
}

// ApprovalInfo names the approval a call runs under.
type ApprovalInfo struct {
	ID       string
	Approver Actor
}
