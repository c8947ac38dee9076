package gatetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"moothall/runtime/gate"
)

func claimOnce(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	e := execution("exe_1")
	have := mustClaim(t, g, e, start())
	equal(t, "execution", have, e)

	again := e
	again.ID = "exe_2"
	have, isFresh, err := g.Claim(t.Context(), again, ev("exe_2", start()))
	ok(t, err)
	equal(t, "fresh", isFresh, false)
	equal(t, "execution", have, e)
	for name, change := range map[string]func(*gate.Execution){
		"other input":      func(e *gate.Execution) { e.ClaimHash = "other" },
		"other capability": func(e *gate.Execution) { e.CapabilityID = "room.kick" },
	} {
		t.Run(name, func(t *testing.T) {
			foreign := again
			change(&foreign)
			_, _, err := g.Claim(t.Context(), foreign, ev("exe_2", start()))
			is(t, err, gate.ErrClaim)
		})
	}
	events, err := g.Events(t.Context(), gate.EventFilter{})
	ok(t, err)
	equal(t, "events", events, []gate.Event{ev("exe_1", start())})
	_, err = g.Execution(t.Context(), "exe_2")
	is(t, err, gate.ErrNotFound)
}

func claimConcurrent(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	const callers = 16
	var mu sync.Mutex
	firsts, ids := 0, map[string]bool{}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			e := execution(fmt.Sprintf("exe_%d", i))
			e.Key = "same"
			have, isFresh, err := g.Claim(t.Context(), e, ev(e.ID, start()))
			if err != nil {
				t.Errorf("claim: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[have.ID] = true
			if isFresh {
				firsts++
			}
		})
	}
	wg.Wait()
	equal(t, "fresh claims", firsts, 1)
	equal(t, "executions", len(ids), 1)
	events, err := g.Events(t.Context(), gate.EventFilter{})
	ok(t, err)
	equal(t, "events", len(events), 1)
}

func pendWritesItsFollowUps(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
	deadline := start().Add(time.Hour)
	a := mustPend(t, g, "apr_1", 1, deadline)
	want := pend("exe_for_apr_1", "apr_1", 1, deadline)
	equal(t, "approval", a, want.Approval)
	e, err := g.Execution(t.Context(), "exe_for_apr_1")
	ok(t, err)
	equal(t, "state", e.State, gate.ExecSuspended)
	equal(t, "approval id", e.ApprovalID, "apr_1")
	equal(t, "result", *e.Result, want.Result)
	is(t, g.Pend(t.Context(), want), gate.ErrState)

	equal(t, "follow-up", rows.take(), []string{"announce apr_1", "expire apr_1"})
	mustPend(t, g, "apr_2", 1, time.Time{}) // never expires
	equal(t, "no deadline", rows.take(), []string{"announce apr_2"})
}

func castQuorum(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
	now := start()
	mustPend(t, g, "apr_1", 2, time.Time{})
	rows.take()
	a, err := g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalPending)
	a, err = g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now)) // the same person twice
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalPending)
	equal(t, "nothing follows", len(rows.take()), 0)
	a, err = g.Cast(t.Context(), vote("apr_1", carol, true, now.Add(time.Second)), ev("", now))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalApproved)
	equal(t, "decided by", a.DecidedBy, user(carol))
	equal(t, "decided at", a.DecidedAt, now.Add(time.Second))
	equal(t, "comment", a.Comment, "so be it")
	equal(t, "votes", a.Votes, []gate.Vote{vote("apr_1", bob, true, now), vote("apr_1", carol, true, now.Add(time.Second))})
	stored, err := g.Approval(t.Context(), "apr_1")
	ok(t, err)
	equal(t, "stored", stored, a)
	equal(t, "follow-up", rows.take(), []string{"show apr_1", "resume apr_1"})
	_, err = g.Cast(t.Context(), vote("apr_1", alice, false, now), ev("", now))
	is(t, err, gate.ErrState)

	mustPend(t, g, "apr_2", 2, time.Time{}) // one no rejects
	_, err = g.Cast(t.Context(), vote("apr_2", bob, true, now), ev("", now))
	ok(t, err)
	a, err = g.Cast(t.Context(), vote("apr_2", carol, false, now), ev("", now))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalRejected)
	equal(t, "nothing resumes", rows.take(), []string{"announce apr_2", "show apr_2"})
	var types []gate.EventType
	events, err := g.Events(t.Context(), gate.EventFilter{Types: []gate.EventType{gate.EventVoted, gate.EventApproved, gate.EventRejected}})
	ok(t, err)
	for _, e := range events {
		types = append(types, e.Type)
	}
	equal(t, "events", types, []gate.EventType{gate.EventVoted, gate.EventVoted, gate.EventApproved, gate.EventVoted, gate.EventRejected})
}

func castReplaces(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	mustPend(t, g, "apr_1", 3, time.Time{})
	for i, person := range []string{bob, carol, bob} {
		v := vote("apr_1", person, true, start().Add(time.Duration(i)*time.Second))
		v.Comment = fmt.Sprintf("%d\x00", i)
		a, err := g.Cast(t.Context(), v, ev("", start()))
		ok(t, err)
		equal(t, "state", a.State, gate.ApprovalPending)
	}
	a, err := g.Approval(t.Context(), "apr_1")
	ok(t, err)
	equal(t, "votes", len(a.Votes), 2)
	equal(t, "first", a.Votes[0].Person, carol)
	equal(t, "last", a.Votes[1].Person, bob)
	equal(t, "comment", a.Votes[1].Comment, "2\uFFFD")
}

func castExpiry(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	deadline := start().Add(time.Hour)
	mustPend(t, g, "apr_1", 2, deadline)
	_, err := g.Cast(t.Context(), vote("apr_1", bob, true, deadline), ev("", start()))
	is(t, err, gate.ErrState)
	_, err = g.Cast(t.Context(), vote("apr_1", bob, true, deadline.Add(-time.Millisecond)), ev("", start()))
	ok(t, err)
	_, err = g.Cast(t.Context(), vote("apr_none", bob, true, start()), ev("", start()))
	is(t, err, gate.ErrNotFound)
}

func castHundredVoters(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
	const voters, quorum = 100, 7
	mustPend(t, g, "apr_1", quorum, time.Time{})
	var mu sync.Mutex
	results := map[string]int{}
	var wg sync.WaitGroup
	for i := range voters {
		wg.Go(func() {
			a, err := g.Cast(t.Context(), vote("apr_1", fmt.Sprintf("@voter%d:example.org", i), true, start()), ev("", start()))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(err, gate.ErrState):
				results["late"]++
			case err != nil:
				t.Errorf("cast: %v", err)
			default:
				results[string(a.State)]++
			}
		})
	}
	wg.Wait()
	equal(t, "results", results, map[string]int{"pending": quorum - 1, "approved": 1, "late": voters - quorum})
	events, err := g.Events(t.Context(), gate.EventFilter{Types: []gate.EventType{gate.EventApproved}})
	ok(t, err)
	equal(t, "decisions", len(events), 1)
	equal(t, "follow-up", rows.take(), []string{"announce apr_1", "show apr_1", "resume apr_1"})
}
