package policy

import (
	"context"
	"fmt"
)

// EvaluateHere is [Evaluate] in the caller's own goroutine, until ctx ends: for a
// caller that asks about many tools and can itself be left behind. It returns
// late if a policy ignores ctx, and then counts that policy as failed.
func EvaluateHere(ctx context.Context, policies []Policy, r Request) Outcome {
	out := Outcome{Stance: StanceAllow}
	out.askHere(ctx, policies, r)
	if out.Failed {
		out.Stance = StanceDeny
	}
	return out
}

func (o *Outcome) askHere(ctx context.Context, policies []Policy, r Request) {
	for _, p := range policies {
		if !speaks(p, r.Phase) {
			continue
		}
		if c, ok := p.(Composite); ok {
			o.askHere(ctx, c.Members(), r)
			continue
		}
		d, err := here(ctx, p, own(r))
		if err != nil {
			o.Failed = true
			o.Records = append(o.Records, Record{Policy: p.Name(), Stance: stanceError})
			continue
		}
		o.Records = append(o.Records, d.record(p))
		o.weigh(p, d)
	}
}

func here(ctx context.Context, p Policy, r Request) (d Decision, err error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fmt.Errorf("policy %s was not asked: %w", p.Name(), err)
	}
	defer func() {
		if recover() != nil {
			d, err = Decision{}, fmt.Errorf("policy %s panicked", p.Name())
		}
	}()
	if d, err = p.Evaluate(ctx, r); err != nil {
		return Decision{}, err
	}
	if err := ctx.Err(); err != nil {
		return Decision{}, fmt.Errorf("policy %s: %w", p.Name(), context.Cause(ctx))
	}
	if err := d.Check(); err != nil {
		return Decision{}, fmt.Errorf("policy %s %w", p.Name(), err)
	}
	return d, nil
}
