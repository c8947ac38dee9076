package gatetest

import (
	"encoding/json"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

func user(id string) capability.Actor {
	return capability.Actor{ID: id, Kind: capability.KindUser, Name: "name", Attributes: map[string]string{"power": "50"}}
}

func origin() gate.Origin { return gate.Origin{Place: room, Lane: room + "|$root", Ref: "$ask"} }

func ev(execution string, at time.Time) gate.Event {
	return gate.Event{
		Type: gate.EventRequested, At: at, Surface: capability.SurfaceCommand, Actor: capability.Actor{ID: alice, Kind: capability.KindUser},
		ExecutionID: execution, CapabilityID: "room.invite", CorrelationID: "$ask", Data: map[string]any{"class": "x"},
	}
}

func execution(id string) gate.Execution {
	return gate.Execution{
		ID: id, Key: "key/" + id, CapabilityID: "room.invite", ClaimHash: "hash", Input: json.RawMessage(`{"who":"<bob>"}`),
		Actor: user(alice), Surface: capability.SurfaceCommand, Origin: origin(), CorrelationID: "$ask", Trace: trace,
		State: gate.ExecClaimed, CreatedAt: start(),
	}
}

func pend(executionID, approvalID string, quorum int, expires time.Time) gate.Pend {
	e := ev(executionID, start())
	e.Type, e.ApprovalID = gate.EventApprovalRequested, approvalID
	return gate.Pend{
		ExecutionID: executionID,
		Approval: gate.Approval{
			ID: approvalID, ExecutionID: executionID, CapabilityID: "room.invite", Revision: "rev", Actor: user(alice),
			Surface: capability.SurfaceCommand, Origin: origin(), CorrelationID: "$ask", Trace: trace, Input: json.RawMessage(`{"who":"<bob>"}`),
			InputHash: "ih", Digest: "dg", Reasons: []string{"it writes"}, Requirements: gate.Requirements{Types: []string{"human"}, Groups: []string{"admins"}, Quorum: quorum},
			SideEffect: capability.SideEffectWrite, Risk: capability.RiskMedium, State: gate.ApprovalPending,
			RequestedAt: start(), ExpiresAt: expires,
		},
		Result: capability.Result{Status: capability.StatusApprovalRequired, ExecutionID: executionID, ApprovalID: approvalID, ExpiresAt: expires},
		Event:  e,
	}
}

// trace is a W3C traceparent.
const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func vote(approval, person string, yes bool, at time.Time) gate.Vote {
	return gate.Vote{ApprovalID: approval, Person: person, Actor: user(person), Yes: yes, Comment: "so be it", Cause: "$vote", Groups: []string{"admins"}, At: at}
}

func startOf(executionID, approvalID string, at time.Time) gate.Start {
	e := ev(executionID, at)
	e.Type = gate.EventStarted
	return gate.Start{
		ExecutionID: executionID, ApprovalID: approvalID, Input: json.RawMessage(`{"who":"bob"}`), InputHash: "ih", Revision: "rev",
		At: at, Event: e,
	}
}

func finish(executionID string, at time.Time) gate.Finish {
	e := ev(executionID, at)
	e.Type = gate.EventCompleted
	return gate.Finish{
		ExecutionID: executionID, From: []gate.ExecState{gate.ExecStarted}, To: gate.ExecCompleted,
		Result: capability.Result{Status: capability.StatusCompleted, ExecutionID: executionID, Output: json.RawMessage(`{"html":"<b>&</b>"}`)},
		At:     at, Event: e,
	}
}

func closing(approvalID string, at time.Time) gate.Close {
	e := ev("", at)
	e.Type, e.ApprovalID = gate.EventApprovalCancelled, approvalID
	return gate.Close{
		ApprovalID: approvalID, From: []gate.ApprovalState{gate.ApprovalPending, gate.ApprovalApproved}, To: gate.ApprovalCancelled,
		By: user(carol), Comment: "not needed", At: at, Event: e,
	}
}

func mustClaim(t *testing.T, g gate.Ledger, e gate.Execution, at time.Time) gate.Execution {
	t.Helper()
	have, isFresh, err := g.Claim(t.Context(), e, ev(e.ID, at))
	ok(t, err)
	equal(t, "fresh", isFresh, true)
	return have
}

// mustPend makes a pending approval.
func mustPend(t *testing.T, g gate.Ledger, id string, quorum int, expires time.Time) gate.Approval {
	t.Helper()
	exe := mustClaim(t, g, execution("exe_for_"+id), start())
	ok(t, g.Pend(t.Context(), pend(exe.ID, id, quorum, expires)))
	a, err := g.Approval(t.Context(), id)
	ok(t, err)
	return a
}

// mustApprove makes an approved approval.
func mustApprove(t *testing.T, g gate.Ledger, id string, expires time.Time) {
	t.Helper()
	mustPend(t, g, id, 1, expires)
	a, err := g.Cast(t.Context(), vote(id, bob, true, start()), ev("", start()))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalApproved)
}
