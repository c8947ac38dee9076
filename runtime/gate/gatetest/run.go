package gatetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

func startConsumes(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
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
	rows.take()
	ok(t, g.Start(t.Context(), startOf(resumed.ID, "apr_1", now)))
	equal(t, "follow-up", rows.take(), []string{"show apr_1"})
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
	_, err = g.Close(t.Context(), closing("apr_1", now))
	is(t, err, gate.ErrState)
}

func startOrCloseWins(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
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
	g, _ := open(t, fresh)
	deadline := start().Add(time.Hour)
	mustApprove(t, g, "apr_1", deadline)
	exe := mustClaim(t, g, execution("exe_1"), start())
	is(t, g.Start(t.Context(), startOf(exe.ID, "apr_1", deadline)), gate.ErrState)
	ok(t, g.Start(t.Context(), startOf(exe.ID, "apr_1", deadline.Add(-time.Millisecond))))
}

func finishAndReport(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
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
	equal(t, "follow-up", rows.take(), []string{"report exe_1"})
	is(t, g.Settle(t.Context(), "exe_1", gate.Settlement{By: user(bob), At: now}, ev("exe_1", now)), gate.ErrState)
}

func settleOnce(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
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
		equal(t, "follow-up", rows.take(), []string{"report " + id, "report " + id})
	}
	is(t, g.Settle(t.Context(), "exe_none", gate.Settlement{At: now}, ev("", now)), gate.ErrNotFound)
}

func closeApproval(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
	now := start()
	mustPend(t, g, "apr_1", 2, time.Time{})
	_, err := g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now))
	ok(t, err)
	rows.take()
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
	equal(t, "follow-up", rows.take(), []string{"show apr_1"})
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

func ledgerNotFound(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	now := start()
	is(t, g.Pend(t.Context(), pend("exe_none", "apr_1", 1, now)), gate.ErrNotFound)
	is(t, g.Start(t.Context(), startOf("exe_none", "", now)), gate.ErrNotFound)
	is(t, g.Finish(t.Context(), finish("exe_none", now)), gate.ErrNotFound)
	is(t, g.Finish(t.Context(), finish("", now)), gate.ErrNotFound)
	_, err := g.Close(t.Context(), closing("apr_none", now))
	is(t, err, gate.ErrNotFound)
	_, err = g.Close(t.Context(), closing("", now))
	is(t, err, gate.ErrNotFound)
	_, err = g.Execution(t.Context(), "")
	is(t, err, gate.ErrNotFound)
	_, err = g.Approval(t.Context(), "apr_none")
	is(t, err, gate.ErrNotFound)
	events, err := g.Events(t.Context(), gate.EventFilter{})
	ok(t, err)
	equal(t, "events", len(events), 0)
}

func ledgerLists(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	ids := func(list []gate.Approval) (out []string) {
		for _, a := range list {
			out = append(out, a.ID)
		}
		return out
	}
	for i, id := range []string{"apr_3f9a", "apr_3f9b", "apr_4_", "apr_4x"} {
		exe := execution("exe_" + id)
		p := pend(exe.ID, id, 1, time.Time{})
		if i == 3 {
			exe.Origin = gate.Origin{Place: other, Lane: "elsewhere"}
			p.Approval.Origin = exe.Origin
		}
		mustClaim(t, g, exe, start())
		ok(t, g.Pend(t.Context(), p))
	}
	_, err := g.Cast(t.Context(), vote("apr_3f9b", bob, true, start()), ev("", start()))
	ok(t, err)
	mustClaim(t, g, execution("exe_last"), start())
	for name, tt := range map[string]struct {
		f    gate.ApprovalFilter
		want []string
	}{
		"all, oldest first": {gate.ApprovalFilter{}, []string{"apr_3f9a", "apr_3f9b", "apr_4_", "apr_4x"}},
		"a place":           {gate.ApprovalFilter{Place: other}, []string{"apr_4x"}},
		"a lane":            {gate.ApprovalFilter{Lane: "elsewhere"}, []string{"apr_4x"}},
		"a prefix":          {gate.ApprovalFilter{IDPrefix: "apr_3f9"}, []string{"apr_3f9a", "apr_3f9b"}},
		"no wildcards":      {gate.ApprovalFilter{IDPrefix: "apr_4_"}, []string{"apr_4_"}},
		"no percent":        {gate.ApprovalFilter{IDPrefix: "%"}, nil},
		"states":            {gate.ApprovalFilter{States: []gate.ApprovalState{gate.ApprovalApproved, gate.ApprovalStale}}, []string{"apr_3f9b"}},
		"a limit":           {gate.ApprovalFilter{Limit: 2}, []string{"apr_3f9a", "apr_3f9b"}},
	} {
		list, err := g.Approvals(t.Context(), tt.f)
		ok(t, err)
		equal(t, name, ids(list), tt.want)
	}
	list, err := g.Approvals(t.Context(), gate.ApprovalFilter{IDPrefix: "apr_3f9b"})
	ok(t, err)
	equal(t, "with votes", len(list[0].Votes), 1)

	for name, tt := range map[string]struct {
		f     gate.ExecutionFilter
		first string
		n     int
	}{
		"all, newest first": {gate.ExecutionFilter{}, "exe_last", 5},
		"a place":           {gate.ExecutionFilter{Place: other}, "exe_apr_4x", 1},
		"a lane":            {gate.ExecutionFilter{Lane: origin().Lane, Limit: 2}, "exe_last", 2},
		"a state":           {gate.ExecutionFilter{States: []gate.ExecState{gate.ExecSuspended}}, "exe_apr_4x", 4},
		"a prefix":          {gate.ExecutionFilter{IDPrefix: "exe_apr_4_"}, "exe_apr_4_", 1},
	} {
		list, err := g.Executions(t.Context(), tt.f)
		ok(t, err)
		equal(t, name, len(list), tt.n)
		equal(t, name, list[0].ID, tt.first)
	}
	none, err := g.Executions(t.Context(), gate.ExecutionFilter{Unsettled: true})
	ok(t, err)
	equal(t, "unsettled", len(none), 0)
	events, err := g.Events(t.Context(), gate.EventFilter{ApprovalID: "apr_4_"})
	ok(t, err)
	equal(t, "events of an approval", len(events), 1)
	events, err = g.Events(t.Context(), gate.EventFilter{ExecutionID: "exe_last", Limit: 1})
	ok(t, err)
	equal(t, "events of an execution", events, []gate.Event{ev("exe_last", start())})
}

func ledgerWithoutConversation(t *testing.T, fresh Fresh) {
	t.Helper()
	g, rows := open(t, fresh)
	now := start()
	e := execution("exe_1")
	e.Origin = gate.Origin{}
	mustClaim(t, g, e, now)
	p := pend("exe_1", "apr_1", 1, time.Time{})
	p.Approval.Origin = e.Origin
	ok(t, g.Pend(t.Context(), p))
	_, err := g.Cast(t.Context(), vote("apr_1", bob, true, now), ev("", now))
	ok(t, err)
	run := execution("exe_2")
	run.Origin = e.Origin
	mustClaim(t, g, run, now)
	ok(t, g.Start(t.Context(), startOf("exe_2", "apr_1", now)))
	ok(t, g.Finish(t.Context(), finish("exe_2", now)))
	equal(t, "follow-up", rows.take(), []string{"announce apr_1", "show apr_1", "show apr_1"})
}

// What will run comes back byte for byte, or is not taken.
func ledgerKeepsBytes(t *testing.T, fresh Fresh) {
	t.Helper()
	g, _ := open(t, fresh)
	e := execution("exe_1")
	e.Input = json.RawMessage(`{ "b":"<&>é\u0000\u2028 ", "a" : 1e400 }`)
	have := mustClaim(t, g, e, start())
	equal(t, "input", string(have.Input), string(e.Input))
	st := startOf("exe_1", "", start())
	st.Input = json.RawMessage("{\"x\":\"é<\"}")
	ok(t, g.Start(t.Context(), st))
	f := finish("exe_1", start())
	f.Result.Output = st.Input
	ok(t, g.Finish(t.Context(), f))
	have, err := g.Execution(t.Context(), "exe_1")
	ok(t, err)
	equal(t, "input", string(have.Input), string(st.Input))
	equal(t, "output", string(have.Result.Output), string(st.Input))
	bad := execution("exe_2")
	bad.Input = json.RawMessage("\"\xff\"")
	if _, _, err := g.Claim(t.Context(), bad, ev("exe_2", start())); err == nil {
		t.Fatal("an input that cannot be kept was taken")
	}
}
