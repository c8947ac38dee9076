package bridge

import (
	"context"
	"fmt"

	"moothall/internal/visible"
	"moothall/runtime/policy"
)

// Showable is the policy that nobody is asked to approve what a card cannot show
// whole: a call that needs an approval is denied when its arguments, with hidden
// characters made visible, are longer than a card has room for. Tools that hide
// their arguments from approvers are exempt. It implements [policy.Policy].
type Showable struct{}

// Name implements [policy.Policy].
func (Showable) Name() string { return "arguments-fit-the-card" }

// Phases implements [policy.Policy].
func (Showable) Phases() []policy.Phase { return []policy.Phase{policy.PhaseInvocation} }

// Evaluate implements [policy.Policy].
func (Showable) Evaluate(_ context.Context, r policy.Request) (policy.Decision, error) {
	if !r.Meta.Approval.Required || r.Meta.RedactInput != nil || fits(r.Input) {
		return policy.Decision{Stance: policy.StanceAllow}, nil
	}
	return policy.Decision{Stance: policy.StanceDeny, Message: fmt.Sprintf(
		"The arguments are too long to be shown whole on an approval card (about %d characters fit), so nobody could know what they approve.", maxShown)}, nil
}

func fits(input []byte) bool {
	// The shown form is never shorter than half of what came.
	return len(input) <= 2*maxShown && len(visible.JSON(input, 8*maxShown)) <= maxShown
}
