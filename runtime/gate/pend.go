package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// approve gets a yes for the call: now, where it is configured and somebody is
// there ([Approvals]), else by putting the question to people and letting go of
// everything. A nil result means that the call holds its approval and goes on.
func (g *Gate) approve(ctx context.Context, p *pass, demands []policy.Decision) (*capability.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("not begun: %w", err)
	}
	reasons, r := g.merge(p.tool, demands)
	ctx, span := g.approvalSpan(ctx, p)
	res, err := g.ask(ctx, p, reasons, r, g.window(p.tool, demands))
	span.asked(res, err)
	return res, err
}

func (g *Gate) ask(ctx context.Context, p *pass, reasons []string, r Requirements, window time.Duration) (*capability.Result, error) {
	a, cerr := g.question(p, g.ids.next("apr"), reasons, r, window)
	if cerr != nil {
		return ended(g.fail(ctx, p, cerr))
	}
	if g.cfg.Approvals.Handler != nil {
		return g.askInline(ctx, p, a)
	}
	return ended(g.suspend(ctx, p, a))
}

func ended(r capability.Result, err error) (*capability.Result, error) { return &r, err }

// question makes the approval that is to be asked for.
func (g *Gate) question(p *pass, id string, reasons []string, r Requirements, window time.Duration) (Approval, *capability.Error) {
	now := g.now()
	a := Approval{
		ID: id, ExecutionID: p.e.ID, CapabilityID: p.e.CapabilityID, Revision: p.tool.revision,
		Actor: p.e.Actor, Surface: p.e.Surface, Origin: p.e.Origin, CorrelationID: p.e.CorrelationID, Trace: p.e.Trace,
		Input: p.input, InputHash: p.e.InputHash, SideEffect: p.tool.Meta.SideEffect, Risk: p.tool.Meta.Risk,
		State: ApprovalPending, RequestedAt: now, Reasons: reasons, Requirements: r,
	}
	if window != Never {
		a.ExpiresAt = now.Add(window)
	}
	d, err := Digest(a)
	if err != nil {
		return a, capability.Fail(capability.CodeApprovalUnserializable).Because(err)
	}
	a.Digest = d
	return a, nil
}

// suspend keeps the question and ends the call with it.
func (g *Gate) suspend(ctx context.Context, p *pass, a Approval) (capability.Result, error) {
	if err := ctx.Err(); err != nil {
		return capability.Result{}, fmt.Errorf("not begun: %w", err)
	}
	p.e.ApprovalID = a.ID
	res := capability.Result{
		Status: capability.StatusApprovalRequired, ExecutionID: p.e.ID, ApprovalID: a.ID, ExpiresAt: a.ExpiresAt,
	}
	err := g.ledger.Pend(ctx, Pend{
		ExecutionID: p.e.ID, Approval: a, Result: res,
		Event: g.event(EventApprovalRequested, p.e, a.RequestedAt, a.summary()),
	})
	if err != nil {
		return capability.Result{}, fmt.Errorf("record approval: %w", err)
	}
	return res, nil
}

// summary is what the audit says of a question.
func (a Approval) summary() map[string]any {
	m := map[string]any{
		"reasons": len(a.Reasons), "types": a.Requirements.Types, "quorum": a.Requirements.Quorum, "expires_at": a.ExpiresAt,
	}
	if len(a.Requirements.Groups) > 0 {
		m["groups"] = a.Requirements.Groups
	}
	return m
}

// merge joins the tool's own gate and the policies' demands: all reasons, all
// types and groups, the highest quorum.
func (g *Gate) merge(t *tool, demands []policy.Decision) ([]string, Requirements) {
	var reasons []string
	r := Requirements{Types: []string{}, Groups: []string{}, Quorum: 1}
	add := func(kind string, quorum int, groups []string) {
		r.Groups = union(r.Groups, groups)
		if kind != "" && !slices.Contains(r.Types, kind) {
			r.Types = append(r.Types, kind)
		}
		r.Quorum = max(r.Quorum, quorum)
	}
	if s := t.Meta.Approval; s.Required {
		reasons = append(reasons, "Approval is required for "+t.ID+".")
		add(s.Type, s.Quorum, s.Groups)
	}
	for _, d := range demands {
		reasons = append(reasons, d.Reason)
		add(d.Type, d.Quorum, d.Groups)
	}
	return reasons, r
}

// window is how long the question stays open: the shortest a policy asks for,
// else the tool's own, else the default.
func (g *Gate) window(t *tool, demands []policy.Decision) time.Duration {
	var w time.Duration
	for _, d := range demands {
		if d.ExpiresIn > 0 && (w == 0 || d.ExpiresIn < w) {
			w = d.ExpiresIn
		}
	}
	if w == 0 {
		w = t.Meta.Approval.ExpiresIn
	}
	return orDefault(w, g.cfg.ApprovalExpiry)
}

// Decision is one person's answer to one approval, as it reached us.
type Decision struct {
	ApprovalID string
	Approver   capability.Actor
	Yes        bool
	Comment    string
	Cause      string // what carried it (an event id); a repeat is no second vote
}

// ErrUndecided means that it could not be told whether the person may decide.
// It is not a no: ask again.
var ErrUndecided = errors.New("it cannot be told now who may decide")

// Decide counts one answer. Who may decide is asked now, of [Electors]; the
// asker, as a person, may not. It returns the approval as it stands: the vote
// may have completed the decision, and then the run follows by itself from a row
// written in the same step.
//
// A refusal is a [capability.Error] fit for the room and is audited. It is
// [ErrUndecided] when nobody can tell yet. Other errors are faults of the
// ledger: nothing was counted.
func (g *Gate) Decide(ctx context.Context, d Decision) (Approval, error) {
	a, err := g.ledger.Approval(ctx, d.ApprovalID)
	if errors.Is(err, ErrNotFound) {
		return Approval{}, noApproval().Because(err)
	} else if err != nil {
		return Approval{}, fmt.Errorf("read approval: %w", err)
	}
	if !d.Approver.Valid() {
		return a, g.refuse(ctx, a, d, capability.Fail(capability.CodeUnauthenticated))
	}
	if d.Cause != "" && slices.ContainsFunc(a.Votes, func(v Vote) bool { return v.Cause == d.Cause && v.Actor.Is(d.Approver) }) {
		return a, nil // the same answer, handled again
	}
	if cerr := g.undecidable(ctx, a); cerr != nil {
		return a, g.refuse(ctx, a, d, cerr)
	}
	if want, err := Digest(a); err != nil || want != a.Digest {
		return a, g.refuse(ctx, a, d, capability.Fail(capability.CodeApprovalMismatch).Because(err))
	}
	ids, self, err := g.person(ctx, d.Approver, a.Actor)
	if err != nil {
		return a, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if self && !g.cfg.AllowSelfApproval {
		return a, g.refuse(ctx, a, d, capability.Fail(capability.CodeSelfApproval).Say("You asked for this yourself, so somebody else has to decide."))
	}
	switch ans, why := g.cfg.Electors.MayDecide(ctx, a, d.Approver); ans {
	case AnswerYes:
	case AnswerCannotTell:
		return a, fmt.Errorf("%w: %s", ErrUndecided, why)
	case AnswerNo:
		return a, g.refuse(ctx, a, d, capability.Fail(capability.CodeForbidden).Say(why))
	default:
		return a, g.refuse(ctx, a, d, capability.Fail(capability.CodeForbidden))
	}
	groups, err := g.groups(ctx, a, d)
	if cerr, ok := errors.AsType[*capability.Error](err); ok {
		return a, g.refuse(ctx, a, d, cerr)
	} else if err != nil {
		return a, err
	}
	return g.cast(ctx, a, d, voter(a, ids), groups)
}

// groups lists which of the approval's groups the approver speaks for. A no
// needs none. It is [ErrUndecided] when that cannot be told, and a refusal when
// nobody could ever tell.
func (g *Gate) groups(ctx context.Context, a Approval, d Decision) ([]string, error) {
	if !d.Yes || len(a.Requirements.Groups) == 0 {
		return nil, nil
	}
	if g.cfg.Groups == nil {
		return nil, capability.Fail(capability.CodeForbidden).Say("It needs the yes of a group, and nobody knows who belongs to one here.")
	}
	var in []string
	for _, name := range a.Requirements.Groups {
		switch ans, why := g.cfg.Groups.Member(ctx, a, name, d.Approver); ans {
		case AnswerYes:
			in = append(in, name)
		case AnswerCannotTell:
			return nil, fmt.Errorf("%w: %s", ErrUndecided, why)
		case AnswerNo:
		}
	}
	return in, nil
}

// voter is the name under which the owner of ids votes on a: the one they voted
// under before, under whichever identity, so that nobody has two votes.
func voter(a Approval, ids []string) string {
	for _, v := range a.Votes {
		if slices.Contains(ids, v.Person) || slices.Contains(ids, v.Actor.ID) {
			return v.Person
		}
	}
	return slices.Min(ids)
}

// noApproval is the error for an approval that does not exist.
func noApproval() *capability.Error {
	e := capability.Fail(capability.CodeInternal)
	e.Stage = capability.StageApproval
	return e
}

func (g *Gate) cast(ctx context.Context, a Approval, d Decision, person string, groups []string) (Approval, error) {
	now := g.now()
	ev := g.approvalEvent(EventVoted, a, d.Approver, now, map[string]any{"yes": d.Yes, "cause": d.Cause})
	after, err := g.ledger.Cast(ctx, Vote{
		ApprovalID: a.ID, Person: person, Actor: d.Approver, Yes: d.Yes, Comment: d.Comment, Cause: d.Cause, Groups: groups, At: now,
	}, ev)
	if err == nil {
		return after, nil
	}
	if !errors.Is(err, ErrState) {
		return a, fmt.Errorf("record vote: %w", err)
	}
	// Somebody was quicker, or the deadline came. Say which.
	now2, err := g.ledger.Approval(ctx, a.ID)
	if err != nil {
		return a, fmt.Errorf("read approval: %w", err)
	}
	cerr := g.undecidable(ctx, now2)
	if cerr == nil {
		return now2, fmt.Errorf("record vote: %w", ErrState)
	}
	return now2, g.refuse(ctx, now2, d, cerr)
}

// undecidable says why a is no longer open to votes, or nil. A deadline that
// has come is acted on here, too.
func (g *Gate) undecidable(ctx context.Context, a Approval) *capability.Error {
	switch a.State {
	case ApprovalPending:
		if !a.ExpiredAt(g.now()) {
			return nil
		}
		if err := g.expire(ctx, a); err != nil && !errors.Is(err, ErrState) {
			return capability.Fail(capability.CodeApprovalExpired).Because(err)
		}
		return capability.Fail(capability.CodeApprovalExpired)
	case ApprovalExpired:
		return capability.Fail(capability.CodeApprovalExpired)
	case ApprovalApproved, ApprovalConsumed:
		return capability.Fail(capability.CodeApprovalConsumed).Say("It has already been approved.")
	case ApprovalRejected:
		return capability.Fail(capability.CodeApprovalRejected).Say("It has already been rejected.")
	case ApprovalCancelled:
		return capability.Fail(capability.CodeApprovalCancelled)
	case ApprovalSuperseded:
		return capability.Fail(capability.CodeApprovalSuperseded)
	case ApprovalStale:
		return capability.Fail(capability.CodeApprovalStale)
	}
	return capability.Fail(capability.CodeInternal)
}

// refuse audits an answer that does not count.
func (g *Gate) refuse(ctx context.Context, a Approval, d Decision, cerr *capability.Error) error {
	ev := g.approvalEvent(EventDecisionRefused, a, d.Approver, g.now(), map[string]any{
		"code": cerr.Code, "yes": d.Yes, "cause": d.Cause, "state": a.State,
	})
	if err := g.ledger.Record(ctx, ev); err != nil {
		return fmt.Errorf("record refusal: %w", err)
	}
	return cerr
}

// person gives every identity of who, and whether they are the same person as
// other.
func (g *Gate) person(ctx context.Context, who, other capability.Actor) (ids []string, same bool, err error) {
	ids, err = g.identities(ctx, who.ID)
	if err != nil {
		return nil, false, err
	}
	theirs, err := g.identities(ctx, other.ID)
	if err != nil {
		return nil, false, err
	}
	return ids, intersect(ids, theirs), nil
}

func (g *Gate) identities(ctx context.Context, id string) ([]string, error) {
	ids, err := g.cfg.People.Identities(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("identities: %w", err)
	}
	return append(slices.Clone(ids), id), nil
}

func intersect(a, b []string) bool {
	return slices.ContainsFunc(a, func(id string) bool { return slices.Contains(b, id) })
}

func (g *Gate) approvalEvent(t EventType, a Approval, by capability.Actor, at time.Time, data map[string]any) Event {
	if !by.Valid() {
		by = capability.Actor{ID: "moothall", Kind: capability.KindAutomation}
	}
	return Event{
		Type: t, At: at, Surface: a.Surface, Actor: capability.Actor{ID: by.ID, Kind: by.Kind},
		ExecutionID: a.ExecutionID, ApprovalID: a.ID, CapabilityID: a.CapabilityID,
		CorrelationID: a.CorrelationID, InputHash: a.InputHash, Data: data,
	}
}
