package gate

import (
	"context"
	"encoding/json"
	"fmt"
)

// View is what an approver sees of an approval, on every surface alike.
type View struct {
	Approval
	Description string
	// Shown is the arguments as approvers may see them: what will run, byte for
	// byte, unless the tool redacts it for approvers.
	Shown    json.RawMessage
	Redacted bool
	// Gone: the tool no longer exists.
	Gone bool
}

// View gives what an approver sees.
func (g *Gate) View(ctx context.Context, approvalID string) (View, error) {
	a, err := g.ledger.Approval(ctx, approvalID)
	if err != nil {
		return View{}, fmt.Errorf("read approval: %w", err)
	}
	v := View{Approval: a, Shown: a.Input}
	t, ok := g.Governance().tools[a.CapabilityID]
	if !ok {
		v.Gone = true
		return v, nil
	}
	v.Description = t.Meta.Description
	if t.Meta.RedactInput != nil {
		v.Redacted = true
		if v.Shown, err = pure(t.Meta.RedactInput, a.Input); err != nil {
			// Show nothing rather than what was meant to be hidden.
			v.Shown = json.RawMessage(`"(withheld)"`)
		}
	}
	return v, nil
}

// Pending lists open approvals of a place, oldest first.
func (g *Gate) Pending(ctx context.Context, place string) ([]Approval, error) {
	return g.ledger.Approvals(ctx, ApprovalFilter{Place: place, States: []ApprovalState{ApprovalPending, ApprovalApproved}})
}

// FindApproval gives the approvals of a place whose id begins with prefix.
func (g *Gate) FindApproval(ctx context.Context, place, prefix string) ([]Approval, error) {
	return g.ledger.Approvals(ctx, ApprovalFilter{Place: place, IDPrefix: "apr_" + prefix, Limit: 5})
}

// FindExecution gives the executions of a place whose id begins with prefix.
func (g *Gate) FindExecution(ctx context.Context, place, prefix string) ([]Execution, error) {
	return g.ledger.Executions(ctx, ExecutionFilter{Place: place, IDPrefix: "exe_" + prefix, Limit: 5})
}

// Unsettled lists executions of a place whose outcome a person has to state.
func (g *Gate) Unsettled(ctx context.Context, place string) ([]Execution, error) {
	return g.ledger.Executions(ctx, ExecutionFilter{Place: place, Unsettled: true})
}

// Execution gives one execution.
func (g *Gate) Execution(ctx context.Context, id string) (Execution, error) {
	return g.ledger.Execution(ctx, id)
}
