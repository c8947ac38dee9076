package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/commands"
	"moothall/internal/visible"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// say makes the outbox row of a message in the thread of t. The thread relation
// is put in when it is sent, with what is then the thread's newest event.
func (b *Bridge) say(key string, t task, c *event.MessageEventContent) queue.Message {
	raw, err := json.Marshal(c)
	if err != nil {
		raw = nil // strings always marshal
	}
	return queue.Message{Key: key, Room: t.Room, Root: t.Root, Part: queue.PartMessage, Content: raw}
}

// docOf turns a command's reply into a message; nil if it says nothing.
func docOf(r commands.Reply) *content.Doc {
	if len(r.Paragraphs) == 0 && len(r.List) == 0 && r.Code == "" {
		return nil
	}
	d := new(content.Doc)
	for _, p := range r.Paragraphs {
		d.P(ticks(p)...)
	}
	items := make([][]content.Span, 0, len(r.List))
	for _, l := range r.List {
		items = append(items, ticks(l))
	}
	d.List(items...)
	if r.Code != "" {
		d.Code(r.Code)
	}
	return d
}

// ticks reads `code` between backticks.
func ticks(s string) []content.Span {
	var out []content.Span
	for i, part := range strings.Split(s, "`") {
		if part == "" {
			continue
		}
		if i%2 == 1 {
			out = append(out, content.C(part))
		} else {
			out = append(out, content.T(part))
		}
	}
	return out
}

// announce posts the card of an approval and seeds the two reactions on it.
func (b *Bridge) announce(ctx context.Context, approvalID string) (effects, error) {
	v, p, err := b.viewed(ctx, approvalID)
	if err != nil {
		return effects{}, err
	}
	card := queue.Message{Key: "card/" + v.ID, Room: p.Room, Root: p.Root, Part: queue.PartCard, Ref: v.ID}
	fx := effects{out: []queue.Message{card}}
	if v.State == gate.ApprovalPending {
		fx.out = append(fx.out, b.seeds(card)...)
	}
	return fx, nil
}

// seeds are the reactions that let one tap decide.
func (b *Bridge) seeds(on queue.Message) []queue.Message {
	var out []queue.Message
	for _, s := range []struct{ name, key string }{{"yes", b.cfg.SeedYes}, {"no", b.cfg.SeedNo}} {
		key, err := json.Marshal(s.key)
		if err != nil {
			continue // a string always marshals
		}
		out = append(out, queue.Message{
			Key: "seed/" + on.Ref + "/" + s.name, Room: on.Room, Root: on.Root, Part: queue.PartReact,
			Ref: on.Ref, Content: key, WaitsFor: on.Key,
		})
	}
	return out
}

// unseed takes the reactions away again, those that were put there.
func (b *Bridge) unseed(ctx context.Context, room, ref string) ([]queue.Message, error) {
	var out []queue.Message
	for _, name := range []string{"yes", "no"} {
		seed := "seed/" + ref + "/" + name
		_, err := b.cfg.Rows.MessageByKey(ctx, seed)
		if errors.Is(err, queue.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up seeded reaction: %w", err)
		}
		out = append(out, queue.Message{
			Key: "unseed/" + ref + "/" + name, Room: room, Part: queue.PartRedact, Ref: ref, WaitsFor: seed,
		})
	}
	return out, nil
}

func (b *Bridge) viewed(ctx context.Context, approvalID string) (gate.View, placeRef, error) {
	v, err := b.cfg.Gate.View(ctx, approvalID)
	if err != nil {
		return v, placeRef{}, err
	}
	p, err := placeOf(v.Origin)
	return v, p, err
}

// show brings the card up to date and, when an approval ended without a run,
// says so in the thread.
func (b *Bridge) show(ctx context.Context, approvalID string) (effects, error) {
	v, p, err := b.viewed(ctx, approvalID)
	if err != nil {
		return effects{}, err
	}
	if v.State == gate.ApprovalPending {
		return effects{}, nil
	}
	outcome := v.State
	if outcome == gate.ApprovalConsumed {
		outcome = gate.ApprovalApproved // the same words; the result follows
	}
	fx := effects{out: []queue.Message{{
		Key: "outcome/" + v.ID + "/" + string(outcome), Room: p.Room, Root: p.Root,
		Part: queue.PartOutcome, Ref: v.ID, WaitsFor: "card/" + v.ID,
	}}}
	redact, err := b.unseed(ctx, p.Room, v.ID)
	if err != nil {
		return effects{}, err
	}
	fx.out = append(fx.out, redact...)
	if text := ending(v); text != "" {
		d := new(content.Doc).P(content.T(text))
		t := task{Room: p.Room, Root: p.Root, Event: p.Event}
		fx.out = append(fx.out, b.say("ended/"+v.ID+"/"+string(v.State), t, content.Text(d, id.UserID(v.Actor.ID))))
	}
	return fx, nil
}

// ending words the end of an approval without a run; "" for one that runs.
func ending(v gate.View) string {
	asker, who := v.Actor.ID, visible.Text(v.DecidedBy.ID, 255)
	why := ""
	if v.Comment != "" {
		why = ": " + v.Comment
	}
	switch v.State {
	case gate.ApprovalRejected:
		return fmt.Sprintf("%s: %s was rejected by %s%s. Nothing was run.", asker, v.CapabilityID, who, why)
	case gate.ApprovalExpired:
		if gate.Tally(v.Requirements, v.Votes) == gate.VerdictApproved {
			return fmt.Sprintf("%s: %s was approved, but too late: the request expired before it could run. Nothing was run; ask again.", asker, v.CapabilityID)
		}
		return fmt.Sprintf("%s: nobody decided about %s in time, so the request has expired. Nothing was run; ask again if it is still wanted.", asker, v.CapabilityID)
	case gate.ApprovalCancelled:
		if who == "" {
			return fmt.Sprintf("%s: the request for %s was cancelled%s. Nothing was run.", asker, v.CapabilityID, why)
		}
		return fmt.Sprintf("%s: the request for %s was cancelled by %s%s. Nothing was run.", asker, v.CapabilityID, who, why)
	case gate.ApprovalStale:
		return fmt.Sprintf("%s: %s has changed since it was asked for, so the approval no longer counts. Nothing was run; ask again.", asker, v.CapabilityID)
	case gate.ApprovalSuperseded:
		return fmt.Sprintf("%s: the request for %s was replaced by a new one.", asker, v.CapabilityID)
	case gate.ApprovalPending, gate.ApprovalApproved, gate.ApprovalConsumed:
	}
	return ""
}

// report tells how an execution ended, or what a person said of an unknown end.
func (b *Bridge) report(ctx context.Context, w queue.Work) (effects, error) {
	e, err := b.cfg.Gate.Execution(ctx, w.Ref)
	if err != nil {
		return effects{}, fmt.Errorf("read execution: %w", err)
	}
	if e.Surface == capability.SurfaceHTTP || e.Surface == capability.SurfaceMCP || e.Result == nil {
		return effects{}, nil // told to whoever asked, by the surface itself
	}
	p, err := placeOf(e.Origin)
	if err != nil {
		return effects{}, nil //nolint:nilerr // an execution of no room has nobody to be told here
	}
	t := task{Room: p.Room, Root: p.Root, Event: p.Event}
	if strings.HasSuffix(w.Key, "/settled") {
		return b.settled(ctx, e, t)
	}
	if e.Unsettled() {
		notice := queue.Message{Key: "unknown/" + e.ID, Room: p.Room, Root: p.Root, Part: queue.PartUnknown, Ref: e.ID}
		return effects{out: append([]queue.Message{notice}, b.seeds(notice)...)}, nil
	}
	d := ended(e, b.cfg.Commands.Prefix())
	c := content.Notice(d)
	if e.ApprovalID != "" {
		// It may have taken hours: the asker is told, not only the thread.
		c = content.Text(d, id.UserID(e.Actor.ID))
	}
	return effects{out: []queue.Message{b.say("result/"+e.ID, t, c)}}, nil
}

func (b *Bridge) settled(ctx context.Context, e gate.Execution, t task) (effects, error) {
	if e.Settled == nil {
		return effects{}, nil
	}
	what := "did not take effect"
	if e.Settled.Done {
		what = "took effect"
	}
	text := fmt.Sprintf("%s says that %s %s", visible.Text(e.Settled.By.ID, 255), e.CapabilityID, what)
	if e.Settled.Note != "" {
		text += ": " + e.Settled.Note
	}
	out, err := b.unseed(ctx, t.Room, e.ID)
	if err != nil {
		return effects{}, err
	}
	d := content.Say(text + ". It is settled; nothing was run again.")
	return effects{out: append(out, b.say("settled/"+e.ID, t, content.Text(d, id.UserID(e.Actor.ID))))}, nil
}

// maxShown bounds arguments and output in a message, in bytes, well below what
// an event may hold twice over (plain and HTML).
const maxShown = 12_000

// ended words the end of an execution whose end is known.
func ended(e gate.Execution, prefix string) *content.Doc {
	d := new(content.Doc)
	r := e.Result
	if r.Status == capability.StatusCompleted {
		var o struct {
			Say string `json:"say"`
		}
		if json.Unmarshal(r.Output, &o) == nil && o.Say != "" {
			return d.P(content.T(visible.Lines(o.Say, maxShown)))
		}
		d.P(content.C(e.CapabilityID), content.T(" is done."))
		if len(r.Output) > 0 && string(r.Output) != "null" {
			d.Code(visible.JSON(r.Output, maxShown))
		}
		return d
	}
	face := capability.Fail(capability.CodeInternal).Face()
	if r.Error != nil {
		face = r.Error.Face()
	}
	d.P(content.C(e.CapabilityID), content.T(" did not run: "+visible.Text(face.Message, 1000)))
	if len(face.Issues) > 0 {
		items := make([][]content.Span, 0, len(face.Issues))
		for _, i := range face.Issues {
			line := visible.Text(i.Message, 300)
			if i.Path != "" {
				line = visible.Text(strings.TrimPrefix(i.Path, "/"), 100) + " " + line
			}
			items = append(items, []content.Span{content.T(line)})
		}
		d.List(items...)
		d.P(content.C(prefix+"help run "+e.CapabilityID), content.T(" shows how it is called."))
	} else if face.Code == capability.CodeInternal {
		d.P(content.T("The log has it under "), content.C(e.ID), content.T("."))
	}
	return d
}
