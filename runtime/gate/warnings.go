package gate

import (
	"fmt"
	"strings"

	"moothall/runtime/capability"
)

// Keys says which of the house's keys there are, for the warnings: a gate holds
// none.
type Keys struct {
	Signing KeyState
	Secrets KeyState
}

// KeyState is what is known of a key. The zero value is a warning.
type KeyState int

// The states of a key.
const (
	KeyMissing  KeyState = iota // nobody has said anything
	KeyPresent                  // there is one
	KeyDeclined                 // the house means to do without
)

// Volatile is a [Ledger] that forgets when the process ends.
type Volatile interface{ Volatile() bool }

// Warnings lists what is configured in a way that people regret, one sentence
// each. They never stop a start and cannot be muted: each ends when the choice is
// made explicit. The answer is about the governance in force now.
func (g *Gate) Warnings() []string {
	var out []string
	order := g.Governance().order
	gated := idsOf(order, func(t *tool) bool { return t.Meta.Approval.Required })
	exposed := idsOf(order, func(t *tool) bool {
		return t.Meta.SideEffect.WriteLike() && (t.Meta.Exposed(capability.SurfaceAgent) || t.Meta.Exposed(capability.SurfaceMCP))
	})
	v, ok := g.cfg.Ledger.(Volatile)
	if ok && v.Volatile() && !g.cfg.VolatileLedger && g.cfg.Approvals.Handler == nil {
		switch {
		case len(gated) > 0:
			out = append(out, "approvals are kept in memory and are lost when the process ends; they gate "+few(gated))
		case len(g.Governance().policies) > 0 && len(exposed) > 0:
			out = append(out, "approvals are kept in memory, and a policy may ask for one of a tool that models can reach: "+few(exposed))
		}
	}
	if len(exposed) > 0 && len(g.cfg.Audit.Sinks) == 0 && !g.cfg.Audit.LedgerOnly {
		out = append(out, "models can reach tools that change things and there is no audit sink: "+few(exposed))
	}
	if g.cfg.Keys.Signing == KeyMissing {
		out = append(out, "there is no signing key, so no delegation or signed decision can be made or checked")
	}
	if g.cfg.Keys.Secrets == KeyMissing {
		out = append(out, "there is no secrets key, so rooms cannot keep secrets")
	}
	return out
}

func idsOf(order []*tool, f func(*tool) bool) []string {
	var out []string
	for _, t := range order {
		if f(t) {
			out = append(out, t.ID)
		}
	}
	return out
}

// few names at most three.
func few(ids []string) string {
	const most = 3
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s (+%d more)", strings.Join(ids[:most], ", "), len(ids)-most)
}
