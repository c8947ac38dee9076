package policy

import (
	"context"
	"fmt"
)

// EvaluateHere is [Evaluate] in the caller's own goroutine, until ctx ends: for a
// caller that asks about many tools and can itself be left behind. It returns
// late if a policy ignores ctx, and then counts that policy as failed.
func EvaluateHere(ctx context.Context, policies []Policy, r Request) Outcome {
	var few [4]Policy
	var out Outcome
	out.Stance = StanceAllow
	for _, p := range speakers(few[:0], policies, r.Phase) {
		var a answer
		here(ctx, p, &r, &a)
		if err := a.d.Check(); err != nil {
			a.err = err
		}
		out.add(p, a.d, a.err)
	}
	return out.sum()
}

// here asks one policy, with a copy of r of its own. An answer that comes when ctx
// is over does not count; whether it is one at all is for the caller to check. It
// goes by pointers because it is the first thing on a small stack.
func here(ctx context.Context, p Policy, r *Request, a *answer) {
	if err := ctx.Err(); err != nil {
		a.err = fmt.Errorf("policy %s was not asked: %w", p.Name(), err)
		return
	}
	defer func() {
		if recover() != nil {
			a.err = fmt.Errorf("policy %s panicked", p.Name())
		}
	}()
	q := *r
	q.part()
	if a.d, a.err = p.Evaluate(ctx, q); a.err != nil {
		return
	}
	if err := ctx.Err(); err != nil {
		a.err = fmt.Errorf("policy %s: %w", p.Name(), context.Cause(ctx))
	}
}
