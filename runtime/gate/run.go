package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"

	"moothall/runtime/capability"
)

// finishTries bounds how often the end of a run is written before the call is
// given up as unknown; between tries it waits finishPause, doubled each time.
const (
	finishTries = 3
	finishPause = 50 * time.Millisecond
	finishLimit = 10 * time.Second
)

// Causes a run can be cut short by.
var (
	errRunTimeout = errors.New("the tool's time-out")
	errRunCancel  = errors.New("cancelled by a person")
)

// run enters the handler of a started execution and records its end.
func (g *Gate) run(ctx context.Context, p *pass) (capability.Result, error) {
	defer func() {
		if p.ended != nil {
			close(p.ended)
		}
	}()
	begun := g.now()
	out, attempts, cerr := g.attempts(ctx, p)
	now := g.now()
	took := max(now.Sub(begun), 0)
	if cerr != nil {
		et := EventFailed
		if cerr.Code == capability.CodeTimeout || cerr.Code == capability.CodeCancelled {
			et = EventCancelled
		}
		return g.end(ctx, p, []ExecState{ExecStarted}, et, cerr, map[string]any{
			"code": cerr.Code, "stage": cerr.Stage, "duration_ms": took.Milliseconds(), "attempts": attempts,
		})
	}
	res := capability.Result{Status: capability.StatusCompleted, ExecutionID: p.e.ID, Output: out}
	err := g.finish(ctx, Finish{
		ExecutionID: p.e.ID, From: []ExecState{ExecStarted}, To: ExecCompleted, Result: res, At: now,
		Event: g.event(EventCompleted, p.e, now, map[string]any{"duration_ms": took.Milliseconds(), "attempts": attempts}),
	})
	if err != nil {
		return capability.Result{}, err
	}
	return res, nil
}

// context makes what the handler may know of the call.
func (g *Gate) context(ctx context.Context, p *pass) *capability.Error {
	info := capability.CallInfo{
		ExecutionID: p.e.ID, CapabilityID: p.e.CapabilityID, Surface: p.e.Surface, Actor: p.e.Actor,
		CorrelationID: p.e.CorrelationID, IdempotencyKey: p.e.Key,
	}
	if p.approval != nil {
		info.Approval = &capability.ApprovalInfo{ID: p.approval.ID, Approver: p.approval.DecidedBy}
	}
	rt, err := g.cfg.Contexts.Context(ctx, info, p.e.Origin)
	if err == nil && rt == nil {
		err = errors.New("there is no context for this call")
	}
	if err != nil {
		e := capability.Fail(capability.CodeInternal).Because(err)
		e.NoEffect = true
		return e
	}
	p.rt = rt
	return nil
}

// enter calls the handler in a goroutine of its own, so that one that ignores
// ctx does not hold the caller. Its late end goes nowhere but the log.
func (g *Gate) enter(ctx context.Context, p *pass, attempt int) (json.RawMessage, *capability.Error) {
	ch := make(chan ending, 1)
	go func() {
		roomy()
		var end ending
		returned := false
		defer func() {
			_ = recover()
			if !returned {
				// A panic or a Goexit. A panic's value may hold anything, so only that
				// it happened is said.
				end = ending{err: fmt.Errorf("handler of %s panicked", p.e.CapabilityID)}
			}
			ch <- end
		}()
		rt := p.rt
		if p.tool.Meta.Retry.Max > 0 {
			fresh := *p.rt // what one attempt does to it the next must not see
			rt = &fresh
		}
		end.out, end.err = p.tool.Run(ctx, rt, slices.Clone(p.input))
		returned = true
	}()
	var end ending
	runtime.Gosched() // most handlers are done when we are back, and no timer is set
	select {
	case end = <-ch:
	default:
		select {
		case <-ctx.Done():
			return nil, g.giveUp(ctx, p, attempt, ch)
		case end = <-ch:
		}
	}
	return g.heard(ctx, p, attempt, ch, end)
}

// roomy makes the stack of a new goroutine as large as decoding JSON needs it. To
// grow while it is empty is much cheaper than to do so two or three times later.
//
//go:noinline
func roomy() {
	var room [6 << 10]byte
	runtime.KeepAlive(&room)
}

// heard is what the end of a handler amounts to.
func (g *Gate) heard(ctx context.Context, p *pass, attempt int, ch chan ending, end ending) (json.RawMessage, *capability.Error) {
	if ctx.Err() != nil {
		ch <- end
		return nil, g.giveUp(ctx, p, attempt, ch)
	}
	if end.err == nil {
		return end.out, nil
	}
	if e, ok := errors.AsType[*capability.Error](end.err); ok {
		if e == nil {
			return nil, capability.Fail(capability.CodeExecutionFailed).Because(errors.New("handler returned a nil error as an error"))
		}
		return nil, e.Complete()
	}
	return nil, capability.Fail(capability.CodeExecutionFailed).Because(end.err)
}

// ending is how a handler ended.
type ending struct {
	out json.RawMessage
	err error
}

// giveUp ends a run that was cut short, and leaves somebody behind to hear how
// the handler ends.
func (g *Gate) giveUp(ctx context.Context, p *pass, attempt int, ch <-chan ending) *capability.Error {
	g.scope.add(0, 1)
	if p.ended == nil {
		p.ended = make(chan struct{})
	}
	go g.late(ctx, p, attempt, ch, p.ended)
	return cutShort(ctx)
}

// late waits for a handler whose call was given up, and puts on record how it
// ended, behind the end of the call. One that ended because it was told to has
// nothing to add.
func (g *Gate) late(ctx context.Context, p *pass, attempt int, ch <-chan ending, ended <-chan struct{}) {
	defer g.scope.add(0, -1)
	end := <-ch
	<-ended
	if end.err != nil && (errors.Is(end.err, ctx.Err()) || errors.Is(end.err, context.Cause(ctx))) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishLimit)
	defer cancel()
	data := map[string]any{"late": true, "attempt": attempt}
	t := EventCompleted
	if end.err != nil {
		t = EventFailed
		data["code"] = capability.CodeExecutionFailed
		if e, ok := errors.AsType[*capability.Error](end.err); ok && e != nil {
			data["code"] = e.Code
		}
	}
	zerolog.Ctx(ctx).Warn().Str("execution_id", p.e.ID).Msg("A handler ended after its call had been given up")
	if err := g.ledger.Record(ctx, g.event(t, p.e, g.now(), data)); err != nil {
		zerolog.Ctx(ctx).Error().Err(err).Str("execution_id", p.e.ID).Msg("Could not record how a handler ended that had been given up")
		g.scope.failed(fmt.Errorf("late end of %s: %w", p.e.ID, err))
	}
}

func cutShort(ctx context.Context) *capability.Error {
	cause := context.Cause(ctx)
	if errors.Is(cause, errRunTimeout) {
		return capability.Fail(capability.CodeTimeout).Because(cause)
	}
	return capability.Fail(capability.CodeCancelled).Because(cause)
}

// accept validates and redacts output. Output that does not pass is withheld.
func (p *pass) accept(out json.RawMessage) (json.RawMessage, *capability.Error) {
	if len(out) == 0 {
		out = json.RawMessage("null")
	}
	bad := !wellFormed(out)
	if p.tool.out != nil {
		bad = bad || scan(out, maxSchemaDepth, tame) != nil || len(check(p.tool.out, out)) > 0
	}
	if bad {
		return nil, capability.Fail(capability.CodeOutputInvalid)
	}
	if p.tool.Meta.RedactOutput == nil {
		return out, nil
	}
	red, err := pure(p.tool.Meta.RedactOutput, out)
	if err != nil {
		return nil, capability.Fail(capability.CodeExecutionFailed).Because(err)
	}
	return red, nil
}

// pure runs a redaction and turns a panic or nonsense into an error.
func pure(f func(json.RawMessage) (json.RawMessage, error), in json.RawMessage) (out json.RawMessage, err error) {
	defer func() {
		if recover() != nil {
			out, err = nil, errors.New("redaction panicked")
		}
	}()
	out, err = f(append(json.RawMessage(nil), in...))
	if err == nil && !wellFormed(out) {
		return nil, errors.New("redaction gave no JSON")
	}
	return out, err
}

// wellFormed also asks for UTF-8, which every ledger can keep.
func wellFormed(b json.RawMessage) bool { return json.Valid(b) && utf8.Valid(b) }

// finish writes the end of an execution. After the handler has run the write is
// tried a few times even if the caller is going away: a lost end makes the
// outcome unknown.
func (g *Gate) finish(ctx context.Context, f Finish) error {
	fctx, stop := withDeadline(context.WithoutCancel(ctx), finishLimit, nil)
	defer stop()
	tries := 1
	if f.From[0] == ExecStarted {
		tries = finishTries
	}
	pause := finishPause
	for i := 1; ; i++ {
		err := g.ledger.Finish(fctx, f)
		if err == nil {
			return nil
		}
		if i >= tries || errors.Is(err, ErrState) {
			return fmt.Errorf("record end: %w", err)
		}
		zerolog.Ctx(ctx).Warn().Err(err).Str("execution_id", f.ExecutionID).Int("try", i).Msg("Could not record the end of a run, trying again")
		t := time.NewTimer(pause)
		select {
		case <-fctx.Done():
			t.Stop()
			return fmt.Errorf("record end: %w", err)
		case <-t.C:
		}
		pause *= 2
	}
}

// repeat answers for an execution that was journalled before.
func (g *Gate) repeat(ctx context.Context, p *pass) (capability.Result, error) {
	e := p.e
	if e.Result != nil {
		return *e.Result, nil
	}
	if e.State != ExecStarted {
		return capability.Result{}, fmt.Errorf("execution %s is %s without an envelope", e.ID, e.State)
	}
	unknown := capability.Result{
		Status: capability.StatusFailed, ExecutionID: e.ID,
		Error: capability.Fail(capability.CodeOutcomeUnknown), Effect: capability.EffectUnknown,
	}
	res, err := g.alone(ctx, e.ID, func(ctx context.Context) (capability.Result, error) {
		// Nobody runs it here now; but somebody may have ended it since we looked.
		if now, err := g.ledger.Execution(ctx, e.ID); err != nil {
			return capability.Result{}, fmt.Errorf("read execution: %w", err)
		} else if now.Result != nil {
			return *now.Result, nil
		}
		// A tool that has changed since says nothing of what the old one did.
		if t, ok := p.gov.tools[e.CapabilityID]; ok && core(e.Revision) == core(t.revision) && (t.Meta.Idempotent || !t.Meta.SideEffect.WriteLike()) {
			return g.again(ctx, p, t)
		}
		now := g.now()
		err := g.finish(ctx, Finish{
			ExecutionID: e.ID, From: []ExecState{ExecStarted}, To: ExecUnknown, Result: unknown, At: now,
			Event: g.event(EventUnknown, e, now, map[string]any{"code": capability.CodeOutcomeUnknown}),
		})
		if errors.Is(err, ErrState) {
			return g.standing(ctx, p, err)
		}
		return unknown, err
	})
	if errors.Is(err, errBusy) {
		return unknown, nil // it runs, so nobody knows yet; that is not put on record
	}
	return res, err
}

// again runs a started execution that died once more, because the tool says
// that twice equals once.
func (g *Gate) again(ctx context.Context, p *pass, t *tool) (capability.Result, error) {
	p.tool, p.input, p.rerun = t, p.e.Input, true
	if p.e.ApprovalID != "" {
		a, err := g.ledger.Approval(ctx, p.e.ApprovalID)
		if err != nil {
			return capability.Result{}, fmt.Errorf("read approval: %w", err)
		}
		p.approval = &a
	}
	if core(p.e.Revision) != core(t.revision) || len(check(t.in, p.input)) > 0 {
		return g.end(ctx, p, []ExecState{ExecStarted}, EventFailed, capability.Fail(capability.CodeApprovalStale), map[string]any{"code": capability.CodeApprovalStale})
	}
	if cerr := g.context(ctx, p); cerr != nil {
		return capability.Result{}, fmt.Errorf("make context: %w", cerr)
	}
	if err := g.ledger.Record(ctx, g.event(EventRetried, p.e, g.now(), map[string]any{"attempt": 2})); err != nil {
		return capability.Result{}, fmt.Errorf("record retry: %w", err)
	}
	return g.run(ctx, p)
}

// errBusy ends a call whose execution another call has in hand.
var errBusy = errors.New("the same call is under way in this process")

// alone runs f for an execution unless it is under way here already. It covers
// the start too, so that nobody takes a call that has just begun for dead.
func (g *Gate) alone(ctx context.Context, id string, f func(context.Context) (capability.Result, error)) (capability.Result, error) {
	ctx, l := withEnd(ctx)
	defer l.end(nil)
	g.mu.Lock()
	_, busy := g.live[id]
	if !busy {
		g.live[id] = l
	}
	g.mu.Unlock()
	if busy {
		return capability.Result{}, errBusy
	}
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.live, id)
	}()
	return f(ctx)
}

// Stop cancels an execution that runs in this process and reports whether there
// was one. Its end is recorded by whoever runs it; a write may have happened.
func (g *Gate) Stop(executionID string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.live[executionID]
	if ok {
		l.end(errRunCancel)
	}
	return ok
}
