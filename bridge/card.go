package bridge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/commands"
	"moothall/internal/visible"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// Content keys of our own. They help clients and our own echo detection; no
// authority is ever read back from them.
const (
	keyOwn  = "org.moothall.key"  // which outbox row an event is
	keyCard = "org.moothall.card" // of a card: approval, capability, state
)

// maxContent bounds what we send, in bytes, below the 65,536 that a whole event
// may have.
const maxContent = 60_000

// rendered is an event ready to be sent.
type rendered struct {
	evType  string
	content json.RawMessage
}

// render makes the event of an outbox row from the state of this moment.
func (b *Bridge) render(ctx context.Context, m queue.Message) (rendered, error) {
	switch m.Part {
	case queue.PartMessage:
		var c event.MessageEventContent
		if err := json.Unmarshal(m.Content, &c); err != nil {
			return rendered{}, fmt.Errorf("read outbox row: %w", err)
		}
		return b.threaded(ctx, m, &c, nil)
	case queue.PartCard, queue.PartOutcome:
		v, err := b.cfg.Gate.View(ctx, m.Ref)
		if err != nil {
			return rendered{}, err
		}
		c := content.Text(b.card(v))
		extra := map[string]any{keyCard: map[string]any{"approval": v.ID, "capability": v.CapabilityID, "state": v.State}}
		if m.Part == queue.PartOutcome {
			return finish(typeMessage, content.Edit(id.EventID(m.Target), c), m, extra)
		}
		return b.threaded(ctx, m, c, extra)
	case queue.PartUnknown:
		e, err := b.cfg.Gate.Execution(ctx, m.Ref)
		if err != nil {
			return rendered{}, err
		}
		return b.threaded(ctx, m, content.Text(b.unknown(e), id.UserID(e.Actor.ID)), nil)
	case queue.PartReact:
		var key string
		if err := json.Unmarshal(m.Content, &key); err != nil {
			return rendered{}, fmt.Errorf("read outbox row: %w", err)
		}
		return finish(typeReaction, content.Reaction(id.EventID(m.Target), key), m, nil)
	case queue.PartRedact:
	}
	return rendered{evType: typeRedaction}, nil
}

// threaded hangs a message into its thread, after the thread's newest event.
func (b *Bridge) threaded(ctx context.Context, m queue.Message, c *event.MessageEventContent, extra map[string]any) (rendered, error) {
	if m.Root != "" {
		latest, err := b.cfg.Rows.Latest(ctx, m.Room, m.Root)
		if err != nil {
			return rendered{}, fmt.Errorf("look up the thread's newest event: %w", err)
		}
		content.InThread(c, id.EventID(m.Root), id.EventID(latest), "")
	}
	return finish(typeMessage, c, m, extra)
}

// finish adds our own keys.
func finish(evType string, c any, m queue.Message, extra map[string]any) (rendered, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return rendered{}, fmt.Errorf("encode event: %w", err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return rendered{}, fmt.Errorf("encode event: %w", err)
	}
	fields[keyOwn] = txnID(m)
	maps.Copy(fields, extra)
	if raw, err = json.Marshal(fields); err != nil {
		return rendered{}, fmt.Errorf("encode event: %w", err)
	}
	if len(raw) > maxContent {
		// Escaping can swell a message that is mostly quotes or angle brackets
		// beyond what an event may hold. The plain text says the same.
		for _, c := range []any{fields, fields["m.new_content"]} {
			if c, ok := c.(map[string]any); ok {
				delete(c, "format")
				delete(c, "formatted_body")
			}
		}
		if raw, err = json.Marshal(fields); err != nil {
			return rendered{}, fmt.Errorf("encode event: %w", err)
		}
	}
	return rendered{evType, raw}, nil
}

// card is what the room sees of an approval: what would run, who asked, why it
// is gated, what it does, what it takes, until when; and how it ended.
func (b *Bridge) card(v gate.View) *content.Doc {
	d := new(content.Doc)
	d.P(content.B(cardTitle(v)))
	d.P(content.T(visible.Text(v.Actor.ID, 255)+" asks to run "), content.C(v.CapabilityID),
		content.T(": "+visible.Text(v.Description, 500)))
	d.Code(visible.JSON(v.Shown, maxShown))
	if !fits(v.Shown) {
		// Only possible where another policy than the tool's own asked.
		d.P(content.B("These arguments are cut here; do not approve what you cannot read."), content.T(" SHA-256 of all of them: "), content.C(v.InputHash))
	}
	items := [][]content.Span{
		{content.B("Effect: "), content.T(fmt.Sprintf("%s, risk %s", v.SideEffect, v.Risk))},
	}
	for _, r := range v.Reasons {
		items = append(items, []content.Span{content.B("Why: "), content.T(visible.Text(r, 300))})
	}
	if v.State == gate.ApprovalPending {
		items = append(items, []content.Span{content.B("Takes: "), content.T(b.takes(v))})
		items = append(items, []content.Span{content.B("Open until: "), content.T(until(v))})
	}
	d.List(items...)
	p, short := b.cfg.Commands.Prefix(), commands.Short(v.ID)
	switch v.State {
	case gate.ApprovalPending:
		d.P(content.T("React "+b.cfg.SeedYes+" to approve or "+b.cfg.SeedNo+" to reject, or write "),
			content.C(p+"approve "+short), content.T(" or "), content.C(p+"reject "+short), content.T("."))
	case gate.ApprovalApproved, gate.ApprovalRejected, gate.ApprovalExpired, gate.ApprovalCancelled,
		gate.ApprovalSuperseded, gate.ApprovalConsumed, gate.ApprovalStale:
		if v.Comment != "" {
			d.P(content.T("Reason given: " + v.Comment))
		}
	}
	return d
}

func cardTitle(v gate.View) string {
	who, at := visible.Text(v.DecidedBy.ID, 255), stamp(v.DecidedAt)
	switch v.State {
	case gate.ApprovalPending:
		return "Approval needed"
	case gate.ApprovalApproved, gate.ApprovalConsumed:
		return "✅ Approved by " + who + at
	case gate.ApprovalRejected:
		return "❌ Rejected by " + who + at
	case gate.ApprovalExpired:
		return "⌛ Expired at " + v.ExpiresAt.UTC().Format(time.DateTime) + " UTC"
	case gate.ApprovalCancelled:
		if who == "" {
			return "Cancelled" + at
		}
		return "Cancelled by " + who + at
	case gate.ApprovalSuperseded:
		return "Replaced by a new request" + at
	case gate.ApprovalStale:
		return "No longer valid: the tool has changed" + at
	}
	return "Approval"
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " at " + t.UTC().Format(time.DateTime) + " UTC"
}

func (b *Bridge) takes(v gate.View) string {
	n := max(v.Requirements.Quorum, 1)
	who := fmt.Sprintf("people in this room with power level %d or more, other than %s", b.cfg.MinPower, visible.Text(v.Actor.ID, 255))
	if n == 1 {
		return "one yes, from " + who
	}
	return fmt.Sprintf("%d yeses, from %s; %d so far", n, who, len(v.Votes))
}

func until(v gate.View) string {
	if v.ExpiresAt.IsZero() {
		return "somebody decides"
	}
	return v.ExpiresAt.UTC().Format(time.DateTime) + " UTC"
}

// unknown is the notice of a call that may or may not have taken effect.
func (b *Bridge) unknown(e gate.Execution) *content.Doc {
	d := new(content.Doc)
	d.P(content.B("Outcome unknown: "), content.C(e.CapabilityID))
	text := fmt.Sprintf("It was started for %s%s, but I do not know whether it took effect. I will not run it again by myself.",
		visible.Text(e.Actor.ID, 255), stamp(e.StartedAt))
	if r := e.Result; r != nil && r.Error != nil && r.Error.Code != capability.CodeOutcomeUnknown {
		text = fmt.Sprintf("It was started for %s%s and ended badly: %s It may have taken effect.",
			visible.Text(e.Actor.ID, 255), stamp(e.StartedAt), visible.Text(r.Error.Face().Message, 500))
	}
	d.P(content.T(text))
	d.Code(visible.JSON(e.Input, maxShown))
	p, short := b.cfg.Commands.Prefix(), commands.Short(e.ID)
	d.P(content.T("Somebody who could have approved it, please look and react "+b.cfg.SeedYes+" if it was done or "+b.cfg.SeedNo+" if not, or write "),
		content.C(p+"settle "+short+" done"), content.T(" or "), content.C(p+"settle "+short+" not-done"), content.T("."))
	return d
}
