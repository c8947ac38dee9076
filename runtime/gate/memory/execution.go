package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// Claim implements [gate.Ledger].
func (l *Ledger) Claim(ctx context.Context, e gate.Execution, ev gate.Event) (have gate.Execution, fresh bool, err error) {
	err = l.step(ctx, "claim", func() ([]followUp, error) {
		if !plain(string(e.Input)) {
			return nil, errNotText
		}
		if id, ok := l.byKey[e.Key]; ok {
			have = copyExecution(l.executions[id])
			if have.CapabilityID != e.CapabilityID || have.ClaimHash != e.ClaimHash {
				have = gate.Execution{}
				return nil, gate.ErrClaim
			}
			return nil, nil
		}
		if _, ok := l.executions[e.ID]; ok {
			return nil, fmt.Errorf("execution %s already exists", e.ID)
		}
		if err := l.audit(ev); err != nil {
			return nil, err
		}
		c := copyExecution(e)
		c.State, c.Result, c.Settled = gate.ExecClaimed, nil, nil
		l.byKey[c.Key], l.executions[c.ID] = c.ID, c
		l.exeOrder = append(l.exeOrder, c.ID)
		have, fresh = copyExecution(c), true
		return nil, nil
	})
	return have, fresh, err
}

// Start implements [gate.Ledger].
func (l *Ledger) Start(ctx context.Context, st gate.Start) error {
	return l.step(ctx, "start", func() ([]followUp, error) {
		if !plain(string(st.Input)) {
			return nil, errNotText
		}
		e, err := l.inState(st.ExecutionID, gate.ExecClaimed)
		if err != nil {
			return nil, err
		}
		var a gate.Approval
		if st.ApprovalID != "" {
			var ok bool
			if a, ok = l.approvals[st.ApprovalID]; !ok {
				return nil, gate.ErrNotFound
			}
			if a.State != gate.ApprovalApproved || a.ExpiredAt(ms(st.At)) {
				return nil, gate.ErrState
			}
		}
		if err := l.audit(st.Event); err != nil {
			return nil, err
		}
		e.State, e.Input, e.InputHash, e.Revision, e.StartedAt = gate.ExecStarted, slices.Clone(st.Input), st.InputHash, st.Revision, ms(st.At)
		if st.ApprovalID == "" {
			l.executions[e.ID] = e
			return nil, nil
		}
		e.ApprovalID = st.ApprovalID
		l.executions[e.ID] = e
		a.State, a.ConsumedBy = gate.ApprovalConsumed, e.ID
		l.approvals[a.ID] = a
		return []followUp{{KindShow, a.ID}}, nil
	})
}

// Finish implements [gate.Ledger].
func (l *Ledger) Finish(ctx context.Context, f gate.Finish) error {
	return l.step(ctx, "finish", func() ([]followUp, error) {
		e, err := l.inState(f.ExecutionID, f.From...)
		if err != nil {
			return nil, err
		}
		result, err := copyResult(&f.Result)
		if err != nil {
			return nil, err
		}
		if err := l.audit(f.Event); err != nil {
			return nil, err
		}
		e.State, e.Result, e.FinishedAt = f.To, result, ms(f.At)
		l.executions[e.ID] = e
		if e.Origin.Lane == "" {
			return nil, nil
		}
		return []followUp{{KindReport, e.ID}}, nil
	})
}

// Settle implements [gate.Ledger].
func (l *Ledger) Settle(ctx context.Context, executionID string, s gate.Settlement, ev gate.Event) error {
	return l.step(ctx, "settle", func() ([]followUp, error) {
		e, ok := l.executions[executionID]
		if !ok {
			return nil, gate.ErrNotFound
		}
		if !e.Unsettled() {
			return nil, gate.ErrState
		}
		if err := l.audit(ev); err != nil {
			return nil, err
		}
		s.By, s.Note, s.At = copyActor(s.By), strings.ToValidUTF8(s.Note, "\uFFFD"), s.At.UTC()
		e.Settled = &s
		l.executions[e.ID] = e
		return []followUp{{KindReport, e.ID}}, nil
	})
}

// Execution implements [gate.Ledger].
func (l *Ledger) Execution(ctx context.Context, id string) (e gate.Execution, err error) {
	err = l.step(ctx, "execution", func() ([]followUp, error) {
		have, ok := l.executions[id]
		if !ok {
			return nil, gate.ErrNotFound
		}
		e = copyExecution(have)
		return nil, nil
	})
	return e, err
}

// Executions implements [gate.Ledger].
func (l *Ledger) Executions(ctx context.Context, f gate.ExecutionFilter) (out []gate.Execution, err error) {
	err = l.step(ctx, "executions", func() ([]followUp, error) {
		for _, id := range slices.Backward(l.exeOrder) {
			e := l.executions[id]
			if len(out) >= orDefault(f.Limit, defaultList) {
				break
			}
			if not(f.Place, e.Origin.Place) || not(f.Lane, e.Origin.Lane) || !strings.HasPrefix(e.ID, f.IDPrefix) ||
				(len(f.States) > 0 && !slices.Contains(f.States, e.State)) || (f.Unsettled && !e.Unsettled()) {
				continue
			}
			out = append(out, copyExecution(e))
		}
		return nil, nil
	})
	return out, err
}

// inState gives an execution that is in one of states.
func (l *Ledger) inState(id string, states ...gate.ExecState) (gate.Execution, error) {
	e, ok := l.executions[id]
	if !ok {
		return gate.Execution{}, gate.ErrNotFound
	}
	if !slices.Contains(states, e.State) {
		return gate.Execution{}, gate.ErrState
	}
	return e, nil
}

func copyExecution(e gate.Execution) gate.Execution {
	e.Input, e.Actor = slices.Clone(e.Input), copyActor(e.Actor)
	e.CreatedAt, e.StartedAt, e.FinishedAt = ms(e.CreatedAt), ms(e.StartedAt), ms(e.FinishedAt)
	if e.Settled != nil {
		s := *e.Settled
		s.By = copyActor(s.By)
		e.Settled = &s
	}
	if e.Result != nil {
		e.Result, _ = copyResult(e.Result) // it was encoded before
	}
	return e
}

// copyResult gives what is left of an envelope in a database: a cause is not.
func copyResult(r *capability.Result) (*capability.Result, error) {
	if len(r.Output) > 0 && !json.Valid(r.Output) {
		return nil, errors.New("encode envelope: output is not JSON")
	}
	c := *r
	c.Output = slices.Clone(r.Output) // byte for byte
	if r.Error != nil {
		c.Error = r.Error.Because(nil)
		c.Error.Issues = slices.Clone(r.Error.Issues)
	}
	return &c, nil
}
