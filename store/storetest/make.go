package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"moothall/bridge/queue"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/store"
)

var errFault = errors.New("fault")

func isFenced(err error) bool { return errors.Is(err, queue.ErrFenced) }

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

func mustClaim(t *testing.T, g *store.Ledger, e gate.Execution, at time.Time) gate.Execution {
	t.Helper()
	have, isFresh, err := g.Claim(t.Context(), e, ev(e.ID, at))
	ok(t, err)
	equal(t, "fresh", isFresh, true)
	return have
}

// mustPend makes a pending approval.
func mustPend(t *testing.T, g *store.Ledger, id string, quorum int, expires time.Time) gate.Approval {
	t.Helper()
	exe := mustClaim(t, g, execution("exe_for_"+id), start())
	ok(t, g.Pend(t.Context(), pend(exe.ID, id, quorum, expires)))
	a, err := g.Approval(t.Context(), id)
	ok(t, err)
	return a
}

// mustApprove makes an approved approval.
func mustApprove(t *testing.T, g *store.Ledger, id string, expires time.Time) {
	t.Helper()
	mustPend(t, g, id, 1, expires)
	a, err := g.Cast(t.Context(), vote(id, bob, true, start()), ev("", start()))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalApproved)
}

// dump writes down all that the database holds, lanes' leases aside.
func dump(t *testing.T, s *store.Store) string {
	t.Helper()
	text, err := dumpOf(t.Context(), s)
	ok(t, err)
	return text
}

func dumpOf(ctx context.Context, s *store.Store) (string, error) {
	var text strings.Builder
	for _, q := range []string{
		`SELECT 'lane ' || class || ' ' || key || ' ' || COALESCE(due, 0) FROM lane ORDER BY class, key`,
		`SELECT 'inbox ' || event_id || ' ' || state || ' ' || root || ' ' || not_before || ' ' || attempts || body FROM inbox ORDER BY event_id`,
		`SELECT 'work ' || key || ' ' || class || ' ' || lane || ' ' || state || ' ' || not_before || ' ' || attempts FROM work ORDER BY key`,
		`SELECT 'outbox ' || key || ' ' || state || ' ' || event_id || ' ' || first_try || ' ' || not_before FROM outbox ORDER BY key`,
		`SELECT 'note ' || key || ' ' || value FROM note ORDER BY key`,
		`SELECT 'execution ' || id || ' ' || state || ' ' || input || result || settled || approval_id || unsettled FROM execution ORDER BY id`,
		`SELECT 'approval ' || id || ' ' || state || ' ' || decided_by || comment || consumed_by FROM approval ORDER BY id`,
		`SELECT 'vote ' || approval_id || ' ' || person || ' ' || yes FROM vote ORDER BY approval_id, person`,
		`SELECT 'audit ' || type || ' ' || execution_id || ' ' || approval_id FROM audit ORDER BY type, execution_id, approval_id`,
	} {
		rows, err := s.Handle().Query(ctx, q)
		if err != nil {
			return "", fmt.Errorf("%s: %w", q, err)
		}
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				return "", errors.Join(err, rows.Close())
			}
			text.WriteString(line + "\n")
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

func settlement() gate.Settlement { return gate.Settlement{By: user(bob), Done: true, At: start()} }

// claimRoom claims outbox lanes until it has the one of a room, and gives the
// others back.
func claimRoom(t *testing.T, r *store.Rows, key string, now time.Time) (context.Context, queue.Lease) {
	t.Helper()
	var others []queue.Lease
	for {
		ctx, l := claim(t, r, queue.ClassOutbox, now)
		if l.Key == key {
			for _, o := range others {
				ok(t, r.Release(t.Context(), o))
			}
			return ctx, l
		}
		others = append(others, l)
	}
}
