package storetest

import (
	"encoding/json"
	"testing"
	"time"

	"moothall/bridge/queue"
	"moothall/runtime/gate"
)

func ledgerNotFound(t *testing.T, fresh Fresh) {
	t.Helper()
	g := open(t, fresh(t)).Ledger()
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
	g := open(t, fresh(t)).Ledger()
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
	s := open(t, fresh(t))
	r, g := s.Rows(), s.Ledger()
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
	noClaim(t, r, queue.ClassThread, now.Add(time.Hour))
	equal(t, "control", keys(work(t, r, queue.ClassControl, now)), []string{"announce/apr_1", "show/apr_1/approved", "show/apr_1/consumed"})
}

// What will run comes back byte for byte, or is not taken.
func ledgerKeepsBytes(t *testing.T, fresh Fresh) {
	t.Helper()
	g := open(t, fresh(t)).Ledger()
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

func auditIsAppendOnly(t *testing.T, fresh Fresh) {
	t.Helper()
	s := open(t, fresh(t))
	ok(t, s.Ledger().Record(t.Context(), ev("exe_1", start())))
	for _, q := range []string{`UPDATE audit SET type='x'`, `DELETE FROM audit`} {
		if _, err := s.Handle().Exec(t.Context(), q); err == nil {
			t.Errorf("%s worked", q)
		}
	}
	events, err := s.Ledger().Events(t.Context(), gate.EventFilter{})
	ok(t, err)
	equal(t, "events", events, []gate.Event{ev("exe_1", start())})
}
