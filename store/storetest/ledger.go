package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"moothall/bridge/queue"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

func claimOnce(t *testing.T, fresh Fresh) {
	t.Helper()
	g := open(t, fresh(t)).Ledger()
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
	g := open(t, fresh(t)).Ledger()
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
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
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

	got := work(t, r, queue.ClassControl, start())
	equal(t, "at once", keys(got), []string{"announce/apr_1"})
	equal(t, "lane", got[0].Lane, "apr_1")
	equal(t, "kind", got[0].Kind, queue.KindAnnounce)
	equal(t, "ref", got[0].Ref, "apr_1")
	due, _, err := r.NextDue(t.Context(), queue.ClassControl)
	ok(t, err)
	equal(t, "next due", due, deadline)
	noClaim(t, r, queue.ClassControl, deadline.Add(-time.Millisecond))
	equal(t, "at the deadline", keys(work(t, r, queue.ClassControl, deadline)), []string{"expire/apr_1"})

	mustPend(t, g, "apr_2", 1, time.Time{}) // never expires
	equal(t, "no deadline", keys(work(t, r, queue.ClassControl, start().Add(1000*time.Hour))), []string{"announce/apr_2"})
}

func castQuorum(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
	now := start()
	mustPend(t, g, "apr_1", 2, time.Time{})
	work(t, r, queue.ClassControl, now)
	a, err := g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalPending)
	a, err = g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now)) // the same person twice
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalPending)
	equal(t, "nothing follows", len(work(t, r, queue.ClassControl, now)), 0)
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
	shown := work(t, r, queue.ClassControl, now.Add(time.Second))
	equal(t, "show", keys(shown), []string{"show/apr_1/approved"})
	equal(t, "show's lane", shown[0].Lane, "apr_1")
	resumed := work(t, r, queue.ClassThread, now.Add(time.Second))
	equal(t, "resume", keys(resumed), []string{"resume/apr_1"})
	equal(t, "resume's lane", resumed[0].Lane, origin().Lane)
	equal(t, "resume's kind", resumed[0].Kind, queue.KindResume)
	_, err = g.Cast(t.Context(), vote("apr_1", alice, false, now), ev("", now))
	is(t, err, gate.ErrState)

	mustPend(t, g, "apr_2", 2, time.Time{}) // one no rejects
	_, err = g.Cast(t.Context(), vote("apr_2", bob, true, now), ev("", now))
	ok(t, err)
	a, err = g.Cast(t.Context(), vote("apr_2", carol, false, now), ev("", now))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalRejected)
	equal(t, "nothing resumes", len(work(t, r, queue.ClassThread, now)), 0)
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
	g := open(t, fresh(t)).Ledger()
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
	g := open(t, fresh(t)).Ledger()
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
	s := open(t, fresh(t))
	g := s.Ledger()
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
	equal(t, "resumed", keys(work(t, s.Rows(), queue.ClassThread, start())), []string{"resume/apr_1"})
}

func startConsumes(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
	now := start()
	mustPend(t, g, "apr_1", 1, now.Add(time.Hour))
	resumed := mustClaim(t, g, execution("exe_run"), now)
	is(t, g.Start(t.Context(), startOf(resumed.ID, "apr_1", now)), gate.ErrState) // nobody said yes
	is(t, g.Start(t.Context(), startOf(resumed.ID, "apr_none", now)), gate.ErrNotFound)
	e, err := g.Execution(t.Context(), resumed.ID)
	ok(t, err)
	equal(t, "state", e.State, gate.ExecClaimed) // and nothing changed
	_, err = g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now))
	ok(t, err)
	work(t, r, queue.ClassControl, now)
	ok(t, g.Start(t.Context(), startOf(resumed.ID, "apr_1", now)))
	equal(t, "follow-up", keys(work(t, r, queue.ClassControl, now)), []string{"show/apr_1/consumed"})
	e, err = g.Execution(t.Context(), resumed.ID)
	ok(t, err)
	equal(t, "state", e.State, gate.ExecStarted)
	equal(t, "input", string(e.Input), `{"who":"bob"}`)
	equal(t, "input hash", e.InputHash, "ih")
	equal(t, "revision", e.Revision, "rev")
	equal(t, "approval", e.ApprovalID, "apr_1")
	equal(t, "started", e.StartedAt, now)
	a, err := g.Approval(t.Context(), "apr_1")
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalConsumed)
	equal(t, "consumed by", a.ConsumedBy, resumed.ID)
	is(t, g.Start(t.Context(), startOf(resumed.ID, "apr_1", now)), gate.ErrState)
	second := mustClaim(t, g, execution("exe_second"), now)
	is(t, g.Start(t.Context(), startOf(second.ID, "apr_1", now)), gate.ErrState) // once
	ok(t, g.Start(t.Context(), startOf(second.ID, "", now)))                     // nobody had to approve
	is(t, g.Start(t.Context(), startOf(second.ID, "", now)), gate.ErrState)
	_, err = g.Close(t.Context(), closing("apr_1", now))
	is(t, err, gate.ErrState)
}

func startOrCloseWins(t *testing.T, fresh Fresh) {
	t.Helper()
	g := open(t, fresh(t)).Ledger()
	for i := range 20 {
		apr, exe := fmt.Sprintf("apr_%d", i), fmt.Sprintf("exe_%d", i)
		mustApprove(t, g, apr, time.Time{})
		mustClaim(t, g, execution(exe), start())
		var started, closed error
		var wg sync.WaitGroup
		wg.Go(func() { started = g.Start(t.Context(), startOf(exe, apr, start())) })
		wg.Go(func() { _, closed = g.Close(t.Context(), closing(apr, start())) })
		wg.Wait()
		if (started == nil) == (closed == nil) {
			t.Fatalf("start: %v, close: %v; want exactly one to win", started, closed)
		}
		is(t, errors.Join(started, closed), gate.ErrState)
		a, err := g.Approval(t.Context(), apr)
		ok(t, err)
		e, err := g.Execution(t.Context(), exe)
		ok(t, err)
		equal(t, "consumed and started together", a.State == gate.ApprovalConsumed, e.State == gate.ExecStarted)
	}
}

func startExpiry(t *testing.T, fresh Fresh) {
	t.Helper()
	g := open(t, fresh(t)).Ledger()
	deadline := start().Add(time.Hour)
	mustApprove(t, g, "apr_1", deadline)
	exe := mustClaim(t, g, execution("exe_1"), start())
	is(t, g.Start(t.Context(), startOf(exe.ID, "apr_1", deadline)), gate.ErrState)
	ok(t, g.Start(t.Context(), startOf(exe.ID, "apr_1", deadline.Add(-time.Millisecond))))
}

func finishAndReport(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
	now := start()
	mustClaim(t, g, execution("exe_1"), now)
	is(t, g.Finish(t.Context(), finish("exe_1", now)), gate.ErrState) // not started
	ok(t, g.Start(t.Context(), startOf("exe_1", "", now)))
	none := finish("exe_1", now)
	none.From = nil
	is(t, g.Finish(t.Context(), none), gate.ErrState)
	ok(t, g.Finish(t.Context(), finish("exe_1", now.Add(time.Second))))
	is(t, g.Finish(t.Context(), finish("exe_1", now)), gate.ErrState) // once
	e, err := g.Execution(t.Context(), "exe_1")
	ok(t, err)
	equal(t, "state", e.State, gate.ExecCompleted)
	equal(t, "finished", e.FinishedAt, now.Add(time.Second))
	equal(t, "result", *e.Result, finish("exe_1", now).Result)
	equal(t, "unsettled", e.Unsettled(), false)
	got := work(t, r, queue.ClassThread, now.Add(time.Second))
	equal(t, "follow-up", keys(got), []string{"report/exe_1"})
	equal(t, "lane", got[0].Lane, origin().Lane)
	equal(t, "kind", got[0].Kind, queue.KindReport)
	is(t, g.Settle(t.Context(), "exe_1", gate.Settlement{By: user(bob), At: now}, ev("exe_1", now)), gate.ErrState)
}

func settleOnce(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
	now := start()
	for id, how := range map[string]func(*gate.Finish){
		"exe_unknown": func(f *gate.Finish) { f.To = gate.ExecUnknown },
		"exe_effect":  func(f *gate.Finish) { f.To, f.Result.Effect = gate.ExecFailed, capability.EffectUnknown },
	} {
		mustClaim(t, g, execution(id), now)
		ok(t, g.Start(t.Context(), startOf(id, "", now)))
		f := finish(id, now)
		how(&f)
		ok(t, g.Finish(t.Context(), f))
		list, err := g.Executions(t.Context(), gate.ExecutionFilter{Unsettled: true})
		ok(t, err)
		equal(t, "unsettled", len(list), 1)
		settlement := gate.Settlement{By: user(bob), Done: true, Note: "seen <it>\x00", At: now}
		ok(t, g.Settle(t.Context(), id, settlement, ev(id, now)))
		is(t, g.Settle(t.Context(), id, settlement, ev(id, now)), gate.ErrState)
		e, err := g.Execution(t.Context(), id)
		ok(t, err)
		equal(t, "settled", *e.Settled, settlement)
		equal(t, "state", e.State, f.To)
		got := work(t, r, queue.ClassControl, now)
		equal(t, "follow-up", keys(got), []string{"report/" + id + "/settled"})
		equal(t, "lane", got[0].Lane, id)
	}
	is(t, g.Settle(t.Context(), "exe_none", gate.Settlement{At: now}, ev("", now)), gate.ErrNotFound)
}

func closeApproval(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
	now := start()
	mustPend(t, g, "apr_1", 2, time.Time{})
	_, err := g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now))
	ok(t, err)
	work(t, r, queue.ClassControl, now)
	wrong := closing("apr_1", now)
	wrong.From = []gate.ApprovalState{gate.ApprovalApproved}
	_, err = g.Close(t.Context(), wrong)
	is(t, err, gate.ErrState)
	wrong.From = nil
	_, err = g.Close(t.Context(), wrong)
	is(t, err, gate.ErrState)
	a, err := g.Close(t.Context(), closing("apr_1", now))
	ok(t, err)
	equal(t, "state", a.State, gate.ApprovalCancelled)
	equal(t, "by", a.DecidedBy, user(carol))
	equal(t, "at", a.DecidedAt, now)
	equal(t, "comment", a.Comment, "not needed")
	equal(t, "votes", len(a.Votes), 1)
	equal(t, "follow-up", keys(work(t, r, queue.ClassControl, now)), []string{"show/apr_1/cancelled"})
	_, err = g.Close(t.Context(), closing("apr_1", now))
	is(t, err, gate.ErrState)
	_, err = g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now))
	is(t, err, gate.ErrState)

	mustPend(t, g, "apr_2", 1, time.Time{})
	byTime := closing("apr_2", now)
	byTime.By, byTime.To = capability.Actor{}, gate.ApprovalExpired
	a, err = g.Close(t.Context(), byTime)
	ok(t, err)
	equal(t, "by", a.DecidedBy, capability.Actor{})
}
