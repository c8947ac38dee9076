package capability

import (
	"errors"
	"fmt"
)

// Code is the closed set of ways a call can go wrong. Meanings never change.
type Code string

// The codes.
const (
	CodeNotFound               Code = "CAPABILITY_NOT_FOUND"
	CodeInputInvalid           Code = "INPUT_INVALID"
	CodeUnauthenticated        Code = "UNAUTHENTICATED"
	CodeForbidden              Code = "FORBIDDEN"
	CodePolicyDenied           Code = "POLICY_DENIED"
	CodePolicyFailed           Code = "POLICY_FAILED"
	CodeApprovalRequired       Code = "APPROVAL_REQUIRED"
	CodeApprovalPending        Code = "APPROVAL_PENDING"
	CodeApprovalRejected       Code = "APPROVAL_REJECTED"
	CodeApprovalExpired        Code = "APPROVAL_EXPIRED"
	CodeApprovalConsumed       Code = "APPROVAL_CONSUMED"
	CodeApprovalMismatch       Code = "APPROVAL_INPUT_MISMATCH"
	CodeSelfApproval           Code = "APPROVAL_SELF_APPROVAL"
	CodeApprovalUnserializable Code = "APPROVAL_UNSERIALIZABLE_INPUT"
	CodeResumeMismatch         Code = "APPROVAL_RESUME_MISMATCH"
	CodeExecutionFailed        Code = "EXECUTION_FAILED"
	CodeOutputInvalid          Code = "OUTPUT_INVALID"
	CodeTimeout                Code = "TIMEOUT"
	CodeCancelled              Code = "CANCELLED"
	CodeAuditUnavailable       Code = "AUDIT_UNAVAILABLE"
	CodeAdapter                Code = "ADAPTER_ERROR"
	CodeInternal               Code = "INTERNAL_ERROR"
	CodeApprovalCancelled      Code = "APPROVAL_CANCELLED"
	CodeApprovalSuperseded     Code = "APPROVAL_SUPERSEDED"
	CodeApprovalStale          Code = "APPROVAL_STALE"
	CodeOutcomeUnknown         Code = "OUTCOME_UNKNOWN" // started, and nobody knows how it ended
)

// Stage is where in the gate a call ended.
type Stage string

// The stages an error can name.
const (
	StageDiscovery      Stage = "discovery"
	StageInput          Stage = "input-validation"
	StageAuthentication Stage = "authentication"
	StageAuthorization  Stage = "authorization"
	StagePolicy         Stage = "policy"
	StageApproval       Stage = "approval"
	StageExecution      Stage = "execution"
	StageOutput         Stage = "output-validation"
	StageTimeout        Stage = "timeout"
	StageCancellation   Stage = "cancellation"
	StageAdapter        Stage = "adapter"
)

const (
	genericPublic         = "The operation failed."
	notFoundPublic        = "Capability not found."
	outcomeUnknownPublic  = "It was started, but it is not known whether it took effect."
	approvalExpiredPublic = "The approval has expired; a new request is required."
)

// Error is how a call fails. Public is safe to post in a room; the wrapped
// cause is for the log alone.
type Error struct {
	Code      Code    `json:"code"`
	Stage     Stage   `json:"stage"`
	Public    string  `json:"message"`
	Retryable bool    `json:"retryable,omitempty"`
	Expose    bool    `json:"expose,omitempty"`
	Issues    []Issue `json:"issues,omitempty"` // of INPUT_INVALID; never the offending values
	// NoEffect is a handler's word that nothing was changed. Without it a
	// write-like tool that fails is reported as "may have happened".
	NoEffect bool  `json:"no_effect,omitempty"`
	cause    error // never serialised
}

// Issue is one fault of the input: where (JSON pointer) and what.
type Issue struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Error gives the code and public text, then the cause, for the log.
func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Public, e.cause)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Public)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.cause }

// Because returns a copy of e with a cause for the log.
func (e *Error) Because(err error) *Error {
	c := *e
	c.cause = err
	return &c
}

// Say returns a copy of e with another public text.
func (e *Error) Say(text string) *Error {
	c := *e
	c.Public = text
	return &c
}

// Fail makes the error of a code with its stage, text and flags.
func Fail(code Code) *Error {
	d, ok := codeDefaults(code)
	if !ok {
		return &Error{Code: CodeInternal, Stage: StageExecution, Public: genericPublic}
	}
	d.Code = code
	if d.Public == "" {
		d.Public = genericPublic
	}
	return &d
}

// Refuse is for handlers: the call is not permitted and nothing was changed.
// text is shown in the room.
func Refuse(text string) *Error {
	e := Fail(CodeForbidden).Say(text)
	e.NoEffect = true
	return e
}

// Failed is for handlers: it went wrong in a declared way. text is shown in the
// room; noEffect says that nothing was changed for certain.
func Failed(text string, noEffect bool) *Error {
	e := Fail(CodeExecutionFailed).Say(text)
	e.Expose = true
	e.NoEffect = noEffect
	return e
}

// Complete gives e with the stage and text of its code where it has none of its
// own. A code outside the closed set becomes a hidden EXECUTION_FAILED.
func (e *Error) Complete() *Error {
	d, ok := codeDefaults(e.Code)
	if !ok {
		return Fail(CodeExecutionFailed).Because(e)
	}
	if e.Stage != "" && e.Public != "" {
		return e
	}
	c := *e
	if c.Stage == "" {
		c.Stage = d.Stage
	}
	if c.Public == "" {
		c.Public = Fail(e.Code).Public
	}
	return &c
}

// CodeOf gives the code of the first [Error] in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Face is all that may cross to a room or a model.
type Face struct {
	Code      Code    `json:"code"`
	Message   string  `json:"message"`
	Retryable bool    `json:"retryable"`
	Issues    []Issue `json:"issues,omitempty"`
}

// Face gives what may be shown: hidden errors all look alike.
func (e *Error) Face() Face {
	if !e.Expose {
		return Face{Code: CodeInternal, Message: genericPublic}
	}
	f := Face{Code: e.Code, Message: e.Public, Retryable: e.Retryable}
	if e.Code == CodeInputInvalid {
		f.Issues = e.Issues
	}
	return f
}

func codeDefaults(c Code) (Error, bool) {
	switch c {
	case CodeNotFound:
		return Error{Stage: StageDiscovery, Public: notFoundPublic, Expose: true}, true
	case CodeInputInvalid:
		return Error{Stage: StageInput, Public: "Input validation failed.", Expose: true, NoEffect: true}, true
	case CodeUnauthenticated:
		return Error{Stage: StageAuthentication, Public: "Authentication is required.", Expose: true}, true
	case CodeForbidden:
		return Error{Stage: StageAuthorization, Public: "The operation is not permitted.", Expose: true}, true
	case CodePolicyDenied:
		return Error{Stage: StagePolicy, Public: "The operation was denied by policy.", Expose: true}, true
	case CodePolicyFailed:
		return Error{Stage: StagePolicy}, true
	case CodeApprovalRequired:
		return Error{Stage: StageApproval, Public: "Approval is required for this operation.", Expose: true}, true
	case CodeApprovalPending:
		return Error{Stage: StageApproval, Public: "The approval decision is still pending.", Retryable: true, Expose: true}, true
	case CodeApprovalRejected:
		return Error{Stage: StageApproval, Public: "The approval was rejected.", Expose: true}, true
	case CodeApprovalExpired:
		return Error{Stage: StageApproval, Public: approvalExpiredPublic, Expose: true}, true
	case CodeApprovalConsumed:
		return Error{Stage: StageApproval, Public: "The approval has already been used.", Expose: true}, true
	case CodeApprovalCancelled:
		return Error{Stage: StageApproval, Public: "The request was cancelled.", Expose: true}, true
	case CodeApprovalSuperseded:
		return Error{Stage: StageApproval, Public: "The approval was replaced by a new one.", Expose: true}, true
	case CodeApprovalStale:
		return Error{Stage: StageApproval, Public: "The tool has changed since it was approved; ask again.", Expose: true}, true
	case CodeSelfApproval:
		return Error{Stage: StageApproval, Public: "The approver must differ from the requesting actor.", Expose: true}, true
	case CodeApprovalMismatch, CodeApprovalUnserializable, CodeResumeMismatch:
		return Error{Stage: StageApproval}, true
	case CodeExecutionFailed, CodeInternal:
		return Error{Stage: StageExecution}, true
	case CodeOutputInvalid:
		return Error{Stage: StageOutput}, true
	case CodeTimeout:
		return Error{Stage: StageTimeout, Public: "The operation timed out.", Retryable: true, Expose: true}, true
	case CodeCancelled:
		return Error{Stage: StageCancellation, Public: "The operation was cancelled.", Expose: true}, true
	case CodeAuditUnavailable:
		return Error{Stage: StageExecution, Retryable: true}, true
	case CodeAdapter:
		return Error{Stage: StageAdapter}, true
	case CodeOutcomeUnknown:
		return Error{Stage: StageExecution, Public: outcomeUnknownPublic, Expose: true}, true
	}
	return Error{}, false
}
