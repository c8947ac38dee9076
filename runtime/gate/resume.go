package gate

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// ResumeOptions are what a trusted surface may say of a resumption. All fields
// are optional; none changes on whose authority the call runs.
type ResumeOptions struct {
	// Key is the idempotency key. Default: one made from the approval's id.
	Key string
	// ExpectedActor and ExpectedSurface must match the record, or the answer is
	// the same as for an unknown id. A matching actor's attributes are used
	// instead of the recorded ones, even if there are none.
	ExpectedActor   *capability.Actor
	ExpectedSurface capability.Surface
	CorrelationID   string
}

// Resume runs what was approved: as the original actor, with the stored input,
// once. Everything is checked again before the approval is used up; a failure
// before that leaves it as it was. A repeat under the same key gives the
// recorded envelope. Errors are faults of the ledger, as for [Gate.Invoke].
func (g *Gate) Resume(ctx context.Context, approvalID string, o ResumeOptions) (capability.Result, error) {
	if err := ctx.Err(); err != nil {
		return capability.Result{}, fmt.Errorf("not begun: %w", err)
	}
	a, err := g.ledger.Approval(ctx, approvalID)
	if errors.Is(err, ErrNotFound) {
		return g.strange(ctx, approvalID, o)
	} else if err != nil {
		return capability.Result{}, fmt.Errorf("read approval: %w", err)
	}
	if cerr, err := g.guard(ctx, a, o); err != nil {
		return capability.Result{}, err
	} else if cerr != nil {
		return refused(cerr), nil
	}
	return g.traced(ctx, a, o)
}

// traced resumes in the trace of the call that asked.
func (g *Gate) traced(ctx context.Context, a Approval, o ResumeOptions) (capability.Result, error) {
	ctx, span := g.callSpan(g.continues(ctx, a.Trace), a.CapabilityID, a.Surface, a.Actor, a.CorrelationID)
	span.set(Attr{AttrApproval, a.ID})
	res, err := g.resumable(ctx, a, o)
	span.finish(res, err)
	return res, err
}

func (g *Gate) resumable(ctx context.Context, a Approval, o ResumeOptions) (capability.Result, error) {
	if a.State == ApprovalConsumed {
		return g.consumed(ctx, a, o.Key)
	}
	if cerr := g.unresumable(ctx, a); cerr != nil {
		return refused(cerr), nil
	}
	return g.resume(ctx, a, o)
}

// houseKey is the idempotency key of the n-th resumption that was given none.
// There is a second only where the first ended, before its start, in a way that
// says to try again.
func houseKey(a Approval, n int) string {
	if n == 1 {
		return "resume/" + a.ID
	}
	return fmt.Sprintf("resume/%s/%d", a.ID, n)
}

// keyFor is the idempotency key of a resumption. One that a caller chose is tied
// to the approval: it can hit neither another approval's resumption nor the call
// that was suspended.
func keyFor(a Approval, chosen string) string {
	if chosen == "" {
		return houseKey(a, 1)
	}
	return "resume/" + a.ID + "/key/" + chosen
}

// tryAgain reports whether e ended before its start in a way that another
// execution may mend.
func (e Execution) tryAgain() bool {
	return e.State == ExecFailed && e.StartedAt.IsZero() && e.Result != nil && e.Result.Error != nil && e.Result.Error.Retryable
}

// maxResumptions bounds how often the house tries to run one approval.
const maxResumptions = 100

// refused is the envelope of a resumption that made no execution.
func refused(e *capability.Error) capability.Result {
	return capability.Result{Status: capability.StatusFailed, Error: e}
}

// knownForm is the form of our own ids: nothing else a stranger says gets into
// the audit trail.
var knownForm = regexp.MustCompile(`^apr_[0-9a-f-]{1,36}$`)

// strange answers for an id that does not exist.
func (g *Gate) strange(ctx context.Context, approvalID string, o ResumeOptions) (capability.Result, error) {
	ev := Event{
		Type: EventFailed, At: g.now(), Surface: capability.SurfaceDirect,
		Actor: capability.Actor{ID: "unknown", Kind: capability.KindAnonymous},
		Data:  map[string]any{"code": capability.CodeInternal, "stage": capability.StageApproval},
	}
	if o.ExpectedActor != nil && o.ExpectedActor.Valid() {
		ev.Actor = capability.Actor{ID: o.ExpectedActor.ID, Kind: o.ExpectedActor.Kind}
	}
	if o.ExpectedSurface != "" {
		ev.Surface = o.ExpectedSurface
	}
	if knownForm.MatchString(approvalID) {
		ev.ApprovalID = approvalID
	}
	if err := g.ledger.Record(ctx, ev); err != nil {
		return capability.Result{}, fmt.Errorf("record refusal: %w", err)
	}
	return refused(noApproval()), nil
}

// guard checks who relays the resumption, before anything else is looked at. An
// error means that it could not be put on record: then it must not differ from
// the same fault with an unknown id.
func (g *Gate) guard(ctx context.Context, a Approval, o ResumeOptions) (*capability.Error, error) {
	by := a.Actor
	bad := false
	if o.ExpectedActor != nil && !o.ExpectedActor.Is(a.Actor) {
		by, bad = *o.ExpectedActor, true
	}
	if o.ExpectedSurface != "" && o.ExpectedSurface != a.Surface {
		bad = true
	}
	if !bad {
		return nil, nil //nolint:nilnil // neither a refusal nor a fault
	}
	ev := g.approvalEvent(EventDenied, a, by, g.now(), map[string]any{"code": capability.CodeResumeMismatch})
	if o.ExpectedSurface != "" {
		ev.Surface = o.ExpectedSurface // on record is the caller, not the owner
	}
	if err := g.ledger.Record(ctx, ev); err != nil {
		return nil, fmt.Errorf("record refusal: %w", err)
	}
	return capability.Fail(capability.CodeResumeMismatch), nil
}

// consumed answers for an approval that was used: with the envelope of the
// execution that used it if the key is the same, else refused.
func (g *Gate) consumed(ctx context.Context, a Approval, key string) (capability.Result, error) {
	e, err := g.ledger.Execution(ctx, a.ConsumedBy)
	if err != nil {
		return capability.Result{}, fmt.Errorf("read execution: %w", err)
	}
	own := houseKey(a, 1)
	house := e.Key == own || (strings.HasPrefix(e.Key, own+"/") && !strings.HasPrefix(e.Key, own+"/key/"))
	if e.Key != keyFor(a, key) && (key != "" || !house) {
		return refused(capability.Fail(capability.CodeApprovalConsumed)), nil
	}
	return g.repeat(ctx, &pass{gov: g.Governance(), e: e, approval: &a})
}

func (g *Gate) unresumable(ctx context.Context, a Approval) *capability.Error {
	switch a.State {
	case ApprovalPending:
		if a.ExpiredAt(g.now()) {
			return g.undecidable(ctx, a)
		}
		return capability.Fail(capability.CodeApprovalPending)
	case ApprovalApproved:
		if !a.ExpiredAt(g.now()) {
			return nil
		}
		cerr := capability.Fail(capability.CodeApprovalExpired)
		if err := g.expire(ctx, a); err != nil && !errors.Is(err, ErrState) {
			cerr = cerr.Because(err)
		}
		return cerr
	case ApprovalRejected:
		return capability.Fail(capability.CodeApprovalRejected)
	case ApprovalConsumed:
		return capability.Fail(capability.CodeApprovalConsumed)
	case ApprovalExpired, ApprovalCancelled, ApprovalSuperseded, ApprovalStale:
		return g.undecidable(ctx, a)
	}
	return capability.Fail(capability.CodeInternal)
}

func (g *Gate) resume(ctx context.Context, a Approval, o ResumeOptions) (capability.Result, error) {
	actor := a.Actor
	if o.ExpectedActor != nil {
		actor.Attributes = o.ExpectedActor.Attributes
	}
	corr := a.CorrelationID
	if o.CorrelationID != "" {
		corr = o.CorrelationID
	}
	now := g.now()
	p := &pass{gov: g.Governance(), approval: &a}
	e := Execution{
		ID: g.ids.next("exe"), Key: keyFor(a, o.Key), CapabilityID: a.CapabilityID, ClaimHash: p.read(a.Input),
		Actor: actor, Surface: a.Surface, Origin: a.Origin, CorrelationID: corr, ApprovalID: a.ID,
		Trace: g.inject(ctx), InputHash: a.InputHash, State: ExecClaimed, CreatedAt: now,
	}
	have, fresh, err := g.ledger.Claim(ctx, e, g.event(EventRequested, e, now, g.resumed))
	for n := 2; err == nil && !fresh && o.Key == "" && have.tryAgain() && n <= maxResumptions; n++ {
		e.ID, e.Key = g.ids.next("exe"), houseKey(a, n)
		have, fresh, err = g.ledger.Claim(ctx, e, g.event(EventRequested, e, now, map[string]any{"resumed": true, "try": n}))
	}
	if err != nil {
		return capability.Result{}, fmt.Errorf("claim: %w", err)
	}
	have.Actor.Attributes = actor.Attributes
	p.e = have
	if !fresh && have.State == ExecSuspended && have.Result != nil {
		return *have.Result, g.replaced(ctx, a, have.Result.ApprovalID)
	}
	if !fresh && have.State != ExecClaimed {
		return g.repeat(ctx, p)
	}
	if cerr, err := g.bound(ctx, a); err != nil {
		return capability.Result{}, err
	} else if cerr != nil {
		return g.fail(ctx, p, cerr)
	}
	t, ok := p.gov.tools[a.CapabilityID]
	if !ok {
		return g.deny(ctx, p, EventDenied, "unknown", capability.Fail(capability.CodeNotFound))
	}
	if !t.Meta.Exposed(a.Surface) {
		return g.deny(ctx, p, EventDenied, "not-exposed", capability.Fail(capability.CodeNotFound))
	}
	p.tool = t
	if cerr := p.validate(false); cerr != nil {
		return g.fail(ctx, p, cerr)
	}
	if core(a.Revision) != core(t.revision) {
		return g.stale(ctx, p, a)
	}
	var demands []policy.Decision
	for _, ph := range []policy.Phase{policy.PhaseInvocation, policy.PhaseExecution} {
		out, res, err := g.policies(ctx, p, ph)
		if res != nil || err != nil {
			return value(res), err
		}
		demands = append(demands, out.Demands...)
	}
	if _, now := g.merge(t, demands); !covers(a.Requirements, now) {
		// The yes that was given is not the yes that is now asked for.
		return g.supersede(ctx, p, demands)
	}
	return g.startAndRun(ctx, p)
}

// bound checks what must not have changed since the question was put. An error
// means that it cannot be told now; that is no refusal.
func (g *Gate) bound(ctx context.Context, a Approval) (*capability.Error, error) {
	if d, err := Digest(a); err != nil || d != a.Digest || HashOf(a.Input) != a.InputHash {
		return capability.Fail(capability.CodeApprovalMismatch).Because(err), nil
	}
	if Tally(a.Requirements, a.Votes) != VerdictApproved {
		return capability.Fail(capability.CodeApprovalMismatch), nil
	}
	return g.recount(ctx, a)
}

// recount weighs the votes by what is known now of who is who: identities that
// were linked since count as one person, and none may be the asker.
func (g *Gate) recount(ctx context.Context, a Approval) (*capability.Error, error) {
	asker, err := g.identities(ctx, a.Actor.ID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUndecided, err)
	}
	if !slices.ContainsFunc(a.Votes, func(v Vote) bool { return v.Yes && v.Actor.Is(a.DecidedBy) }) {
		return capability.Fail(capability.CodeApprovalMismatch), nil
	}
	var people [][]string
	for _, v := range a.Votes {
		ids, err := g.identities(ctx, v.Actor.ID)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUndecided, err)
		}
		if intersect(ids, asker) && !g.cfg.AllowSelfApproval {
			return capability.Fail(capability.CodeSelfApproval), nil
		}
		people = slices.DeleteFunc(people, func(p []string) bool {
			if !intersect(p, ids) {
				return false
			}
			ids = append(ids, p...)
			return true
		})
		people = append(people, ids)
	}
	if len(people) < a.Requirements.Quorum {
		return capability.Fail(capability.CodeApprovalMismatch), nil
	}
	return nil, nil //nolint:nilnil // neither a refusal nor a fault
}

// covers reports whether have holds every sign-off that want names.
func covers(have, want Requirements) bool {
	return want.Quorum <= have.Quorum &&
		!slices.ContainsFunc(want.Types, func(t string) bool { return !slices.Contains(have.Types, t) }) &&
		!slices.ContainsFunc(want.Groups, func(n string) bool { return !slices.Contains(have.Groups, n) })
}

// stale ends an approval whose tool is no longer the tool that was approved.
func (g *Gate) stale(ctx context.Context, p *pass, a Approval) (capability.Result, error) {
	now := g.now()
	_, err := g.ledger.Close(ctx, Close{
		ApprovalID: a.ID, From: []ApprovalState{ApprovalApproved}, To: ApprovalStale, At: now,
		Event: g.approvalEvent(EventStale, a, capability.Actor{}, now, nil),
	})
	if err != nil && !errors.Is(err, ErrState) {
		return capability.Result{}, fmt.Errorf("close stale approval: %w", err)
	}
	return g.fail(ctx, p, capability.Fail(capability.CodeApprovalStale))
}

// lostStart explains a start that lost its compare-and-set: the execution has
// been started elsewhere, or the approval was used, closed or ran out between the
// look and the start.
func (g *Gate) lostStart(ctx context.Context, p *pass) (capability.Result, error) {
	e, err := g.ledger.Execution(ctx, p.e.ID)
	if err != nil {
		return capability.Result{}, fmt.Errorf("read execution: %w", err)
	}
	if e.State != ExecClaimed || p.approval == nil {
		return g.standing(ctx, p, fmt.Errorf("record start: %w", ErrState))
	}
	a, err := g.ledger.Approval(ctx, p.approval.ID)
	if err != nil {
		return capability.Result{}, fmt.Errorf("read approval: %w", err)
	}
	cerr := g.unresumable(ctx, a)
	if cerr == nil {
		return capability.Result{}, fmt.Errorf("record start: %w", ErrState)
	}
	return g.fail(ctx, p, cerr)
}
