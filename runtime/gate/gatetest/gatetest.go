// Package gatetest is the conformance suite of a [gate.Ledger]: what the gate
// relies on, as tests that every ledger must pass.
package gatetest

import (
	"errors"
	"path"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"moothall/runtime/gate"
)

const (
	room  = "!hall:example.org"
	other = "!other:example.org"
	alice = "@alice:example.org"
	bob   = "@bob:example.org"
	carol = "@carol:example.org"
)

// start is the time at which the tests begin.
func start() time.Time { return time.UnixMilli(1_700_000_000_000).UTC() }

// Fresh gives an empty ledger that tells onFollowUp the kind (announce, expire,
// show, resume, report) and record of each follow-up row, in the order written.
type Fresh func(t *testing.T, onFollowUp func(kind, ref string)) gate.Ledger

// RunLedger runs the suite, each test on a ledger of its own.
func RunLedger(t *testing.T, fresh Fresh) {
	t.Helper()
	for _, test := range []func(*testing.T, Fresh){
		claimOnce, claimConcurrent, pendWritesItsFollowUps, castQuorum, castReplaces, castExpiry,
		castHundredVoters, startConsumes, startOrCloseWins, startExpiry, finishAndReport, settleOnce, closeApproval,
		ledgerNotFound, ledgerLists, ledgerWithoutConversation, ledgerKeepsBytes, givesCopies, failedStepsChangeNothing,
	} {
		name := path.Base(runtime.FuncForPC(reflect.ValueOf(test).Pointer()).Name())
		t.Run(name[strings.LastIndex(name, ".")+1:], func(t *testing.T) { test(t, fresh) })
	}
}

// followUps collects follow-up rows.
type followUps struct {
	mu   sync.Mutex
	rows []string
}

func (f *followUps) add(kind, ref string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, kind+" "+ref)
}

// take gives the rows since it was last asked.
func (f *followUps) take() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows := f.rows
	f.rows = nil
	return rows
}

func open(t *testing.T, fresh Fresh) (gate.Ledger, *followUps) {
	t.Helper()
	f := new(followUps)
	return fresh(t, f.add), f
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

func is(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v; want %v", err, target)
	}
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %+v; want %+v", what, got, want)
	}
}

// givesCopies: nobody can reach into the ledger through what they gave or got.
func givesCopies(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	e := execution("exe_for_apr_1")
	given := mustClaim(t, g, e, start())
	e.Input[2], e.Actor.Attributes["power"] = 'X', "100"
	given.Input[2], given.Actor.Attributes["power"] = 'X', "100"
	have, err := g.Execution(t.Context(), e.ID)
	ok(t, err)
	equal(t, "execution", have, execution(e.ID))
	p := pend(e.ID, "apr_1", 2, time.Time{})
	ok(t, g.Pend(t.Context(), p))
	p.Approval.Requirements.Types[0], p.Event.Data["class"] = "none", "y"
	_, err = g.Cast(t.Context(), vote("apr_1", bob, true, start()), ev("", start()))
	ok(t, err)
	for range 2 {
		a, err := g.Approval(t.Context(), "apr_1")
		ok(t, err)
		want := pend(e.ID, "apr_1", 2, time.Time{}).Approval
		want.Votes = []gate.Vote{vote("apr_1", bob, true, start())}
		equal(t, "approval", a, want)
		a.Requirements.Types[0], a.Votes[0].Yes, a.Input[2], a.Reasons[0] = "none", false, 'X', "no reason"
		events, err := g.Events(t.Context(), gate.EventFilter{ApprovalID: "apr_1"})
		ok(t, err)
		equal(t, "event", events[0].Data, map[string]any{"class": "x"})
		events[0].Data["class"] = "y"
	}
}

// failedStepsChangeNothing: a caller that has gone away writes nothing, and an
// event that cannot be kept takes its step with it.
func failedStepsChangeNothing(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
	mustPend(t, g, "apr_1", 1, time.Time{})
	rows.take()
	bad := ev("", start())
	bad.Data = map[string]any{"f": func() {}}
	if _, err := g.Cast(t.Context(), vote("apr_1", bob, true, start()), bad); err == nil {
		t.Fatal("a vote was counted without its audit row")
	}
	a, err := g.Approval(t.Context(), "apr_1")
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalPending)
	equal(t, "votes", len(a.Votes), 0)
	equal(t, "follow-up", len(rows.take()), 0)
}
