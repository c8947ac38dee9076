package capability

import (
	"encoding/json"
	"fmt"
	"time"
)

// Status is how a call stands when the gate answers.
type Status string

// The statuses. Exactly one envelope is made for an execution.
const (
	StatusCompleted        Status = "completed"
	StatusApprovalRequired Status = "approval-required"
	StatusFailed           Status = "failed"
	StatusCancelled        Status = "cancelled" // code TIMEOUT or CANCELLED
)

// EffectStatus says what is known of the effect of a call that did not
// complete. It never asserts a rollback.
type EffectStatus string

// EffectUnknown means that the handler was entered and no validated result came
// out.
const EffectUnknown EffectStatus = "unknown"

// Result is the envelope of one execution, as answered and as journalled.
type Result struct {
	Status      Status `json:"status"`
	ExecutionID string `json:"execution_id"`
	// Output is the validated, redacted output of a completed call.
	Output json.RawMessage `json:"output,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	Effect EffectStatus    `json:"effect_status,omitempty"`
	// ApprovalID and ExpiresAt are set when a human has to say yes first.
	ApprovalID string    `json:"approval_id,omitempty"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"` // zero: never
}

// Unwrap gives the output of a completed call, else the reason there is none as
// an [Error]; a call that waits for people is [CodeApprovalRequired]. It is for
// code that has no use for the difference; surfaces answer with the envelope.
func (r Result) Unwrap() (json.RawMessage, error) {
	switch {
	case r.Status == StatusCompleted:
		return r.Output, nil
	case r.Status == StatusApprovalRequired:
		return nil, Fail(CodeApprovalRequired).Because(fmt.Errorf("approval %s is pending", r.ApprovalID))
	case r.Error != nil:
		return nil, r.Error
	}
	return nil, Fail(CodeInternal).Because(fmt.Errorf("an envelope of status %q without an error", r.Status))
}
