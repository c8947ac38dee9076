package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"moothall/runtime/capability"
	"moothall/runtime/policy"
)

// supersede replaces an approval that lacks a sign-off the rules now ask for by a
// new question with the union of reasons and requirements. The new one is kept
// first: if the process dies between the two steps, the repeat of the resumption
// closes the old one.
func (g *Gate) supersede(ctx context.Context, p *pass, demands []policy.Decision) (capability.Result, error) {
	old := *p.approval
	reasons, r := g.merge(p.tool, demands)
	reasons, r.Types, r.Groups = union(old.Reasons, reasons), union(old.Requirements.Types, r.Types), union(old.Requirements.Groups, r.Groups)
	r.Quorum = max(r.Quorum, old.Requirements.Quorum)
	p.approval = nil
	a, cerr := g.question(p, successor(old), reasons, r, g.window(p.tool, demands))
	if cerr != nil {
		return g.fail(ctx, p, cerr)
	}
	res, err := g.suspend(ctx, p, a)
	if err != nil {
		return res, err
	}
	return res, g.replaced(ctx, old, res.ApprovalID)
}

// successor is the id of the approval that replaces a. It is made from a's, so
// that two resumptions at once cannot both put a new question.
func successor(a Approval) string {
	return "apr_" + uuid.NewSHA1(uuid.NameSpaceOID, []byte("successor of "+a.ID)).String()
}

// replaced closes an approval whose successor exists.
func (g *Gate) replaced(ctx context.Context, old Approval, by string) error {
	now := g.now()
	_, err := g.ledger.Close(ctx, Close{
		ApprovalID: old.ID, From: []ApprovalState{ApprovalApproved}, To: ApprovalSuperseded, At: now,
		Event: g.approvalEvent(EventSuperseded, old, capability.Actor{}, now, map[string]any{"by": by}),
	})
	if err != nil && !errors.Is(err, ErrState) {
		return fmt.Errorf("close superseded approval: %w", err)
	}
	return nil
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
