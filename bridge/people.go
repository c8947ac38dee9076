package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// invited joins where somebody of our own server asks us to, and declines
// elsewhere. A join that fails for the moment is tried again.
func (b *Bridge) invited(ctx context.Context, t task) (effects, error) {
	if !strings.HasSuffix(t.Sender, ":"+b.cfg.Domain) {
		if err := b.cfg.Homeserver.Leave(ctx, t.Room); err != nil && temporary(err) {
			return effects{}, fmt.Errorf("decline invite: %w", err)
		}
		zerolog.Ctx(ctx).Info().Msg("Declined an invite from another server")
		return effects{}, nil
	}
	if err := b.cfg.Homeserver.Join(ctx, t.Room); err != nil {
		if e, ok := errors.AsType[*APIError](err); ok && e.Status == http.StatusForbidden {
			zerolog.Ctx(ctx).Warn().Err(err).Msg("The homeserver refused to let me join")
			return effects{}, nil // the invite was taken back
		}
		return effects{}, fmt.Errorf("join: %w", err)
	}
	// Cards that could not be brought up to date while we were out are now.
	if err := b.cfg.Rows.Revive(ctx, t.Room, b.now().Add(-reviveFor), b.now()); err != nil {
		return effects{}, fmt.Errorf("revive messages: %w", err)
	}
	raw, err := b.cfg.Homeserver.State(ctx, t.Room, typeEncryption, "")
	if errors.Is(err, ErrNoState) {
		return effects{}, nil
	}
	if err != nil {
		return effects{}, fmt.Errorf("see whether the room is encrypted: %w", err)
	}
	if len(raw) > 0 {
		t.Hint = hintEncrypted
		return b.hint(ctx, t)
	}
	return effects{}, nil
}

// reviveFor is how old a refused message may be to be sent after all.
const reviveFor = 7 * 24 * time.Hour

// leftUpgraded stands for everybody: the room itself has moved on.
const leftUpgraded = "upgraded"

// left cancels what waits for somebody who is gone, or for a room we are no
// longer in or that was replaced by another.
func (b *Bridge) left(ctx context.Context, t task) (effects, error) {
	return effects{}, b.withdraw(ctx, t.Room, func(a gate.Approval) string {
		switch t.Target {
		case leftUpgraded:
			return "this room was upgraded; ask again in the new room"
		case a.Actor.ID:
			return "the person who asked has left the room"
		case b.cfg.Bot:
			return "I was removed from the room"
		}
		return ""
	})
}

// redacted cancels what a message asked for when the message is deleted: who
// takes their words back no longer wants them acted on.
func (b *Bridge) redacted(ctx context.Context, t task) (effects, error) {
	return effects{}, b.withdraw(ctx, t.Room, func(a gate.Approval) string {
		if p, err := placeOf(a.Origin); err == nil && p.Event == t.Target {
			return whyDeleted
		}
		return ""
	})
}

// withdraw cancels the open approvals of a room for which there is a reason.
func (b *Bridge) withdraw(ctx context.Context, room string, reason func(gate.Approval) string) error {
	open, err := b.cfg.Gate.Pending(ctx, room)
	if err != nil {
		return fmt.Errorf("list approvals: %w", err)
	}
	for _, a := range open {
		why := reason(a)
		if why == "" {
			continue
		}
		_, err := b.cfg.Gate.Cancel(ctx, a.ID, capability.Actor{}, why)
		if _, refused := errors.AsType[*capability.Error](err); err != nil && !refused {
			return fmt.Errorf("cancel: %w", err)
		}
	}
	return nil
}

// hint says why nothing is run. Each is said once for its cause.
func (b *Bridge) hint(ctx context.Context, t task) (effects, error) {
	p := b.cfg.Commands.Prefix()
	switch t.Hint {
	case hintEncrypted:
		// Said in clear, once; from then on nothing is said in this room. The
		// note keeps every other row out (see [Bridge.render]).
		if err := b.cfg.Rows.SetNote(ctx, noteEncrypted+t.Room, "1"); err != nil {
			return effects{}, fmt.Errorf("note encrypted room: %w", err)
		}
		t.Root = ""
		return effects{out: []queue.Message{b.say(noteEncrypted+t.Room, t, content.Notice(content.Say(
			"This room is encrypted and I cannot read encrypted messages, so I cannot help here. Please use a room without encryption.")))}}, nil
	case hintForeign:
		return effects{out: []queue.Message{b.say(noteForeign+t.Sender, t, content.Notice(content.Say(
			"I only work for people of "+b.cfg.Domain+".")))}}, nil
	case hintOld:
		// One summary for each room and day, however many there were.
		day := b.now().UTC().Format(time.DateOnly)
		t.Root = ""
		return effects{out: []queue.Message{b.say("old/"+t.Room+"/"+day, t, content.Notice(content.Say(
			"Requests arrived while I was away and are too old to act on now. Please send again what still matters.")))}}, nil
	}
	if t.Hint == hintCard {
		return effects{out: []queue.Message{b.say("talk/"+t.Event, t, content.Notice(content.Say(
			"I take that as neither yes nor no. Reply with just yes or no, or react to the card, to decide.")))}}, nil
	}
	return effects{out: []queue.Message{b.say("talk/"+t.Event, t, content.Notice(new(content.Doc).P(
		content.T("I understand commands. "), content.C(p+"help"), content.T(" lists them, "), content.C(p+"tools"), content.T(" shows what I can do."))))}}, nil
}

// electorsWait bounds the question who may decide.
const electorsWait = 15 * time.Second

// Electors answers who may decide from the room's state at that moment: joined,
// with at least MinPower, and not the bot. It implements [gate.Electors].
type Electors struct {
	Homeserver Homeserver
	Bot        string
	MinPower   int64
	// Withdraw, if set, is called when a decision finds that the message which
	// asked has been deleted. Not every homeserver tells of deletions, so it is
	// looked at when it matters.
	Withdraw func(ctx context.Context, approvalID, why string) error
}

// whyDeleted is the reason of an approval that is cancelled so.
const whyDeleted = "the message that asked for it was deleted"

// MayDecide implements [gate.Electors]. It asks the homeserver each time.
func (el Electors) MayDecide(ctx context.Context, a gate.Approval, who capability.Actor) (gate.Answer, string) {
	p, err := placeOf(a.Origin)
	if err != nil || who.Kind != capability.KindUser || !strings.HasPrefix(who.ID, "@") {
		return gate.AnswerNo, "Only people in the room can decide this."
	}
	if who.ID == el.Bot {
		return gate.AnswerNo, "I cannot decide my own requests."
	}
	ctx, cancel := context.WithTimeout(ctx, electorsWait)
	defer cancel()
	gone := make(chan deleted, 1)
	go func() { gone <- el.deleted(ctx, a, p) }()
	f, err := readFacts(ctx, el.Homeserver, p.Room, who.ID)
	del := <-gone
	if err == nil {
		err = del.err
	}
	if err != nil {
		zerolog.Ctx(ctx).Warn().Err(err).Str("room_id", p.Room).Msg("Could not read who may decide")
		if e, ok := errors.AsType[*APIError](err); ok && e.Status == http.StatusForbidden {
			return gate.AnswerNo, "I can no longer see this room, so nobody can decide here."
		}
		return gate.AnswerCannotTell, "the homeserver could not be asked"
	}
	if f.membership[who.ID] != "join" {
		return gate.AnswerNo, "Only people who are in the room can decide this."
	}
	if f.power(who.ID) < el.MinPower {
		return gate.AnswerNo, fmt.Sprintf("Deciding this takes power level %d in this room.", el.MinPower)
	}
	if del.yes {
		if el.Withdraw != nil {
			if err := el.Withdraw(ctx, a.ID, whyDeleted); err != nil {
				zerolog.Ctx(ctx).Error().Err(err).Msg("Could not cancel what a deleted message asked for")
				return gate.AnswerCannotTell, "the request could not be cancelled"
			}
		}
		return gate.AnswerNo, "The message that asked for this was deleted, so the request is cancelled."
	}
	return gate.AnswerYes, ""
}

// deleted is what is known of the message that asked.
type deleted struct {
	yes bool
	err error
}

// deleted looks whether the message that asked for an open request is redacted.
// A message that cannot be found is not: homeservers need a moment to show one.
func (el Electors) deleted(ctx context.Context, a gate.Approval, p placeRef) deleted {
	if a.State != gate.ApprovalPending || p.Event == "" {
		return deleted{}
	}
	raw, err := el.Homeserver.Event(ctx, p.Room, p.Event)
	if err != nil {
		if temporary(err) {
			return deleted{err: fmt.Errorf("the message that asked: %w", err)}
		}
		return deleted{}
	}
	var unsigned, because json.RawMessage
	if exact(raw, map[string]any{"unsigned": &unsigned}) != nil || len(unsigned) == 0 {
		return deleted{}
	}
	if exact(unsigned, map[string]any{"redacted_because": &because}) != nil {
		return deleted{}
	}
	return deleted{yes: len(because) > 0 && string(because) != "null"}
}

// Contexts makes the per-call context from a bridge's origin. It implements
// [gate.Contexts].
type Contexts struct{}

// Context implements [gate.Contexts].
func (Contexts) Context(ctx context.Context, call capability.CallInfo, o gate.Origin) (*capability.Context, error) {
	p, err := placeOf(o)
	if err != nil {
		return nil, err
	}
	return &capability.Context{
		User:    capability.User{MatrixUserID: call.Actor.ID},
		Session: capability.Session{ID: p.Root, Client: "matrix", RequestID: call.CorrelationID, RoomID: p.Room},
		Call:    call,
		Logger:  zerolog.Ctx(ctx).With().Str("capability", call.CapabilityID).Str("execution_id", call.ExecutionID).Logger(),
	}, nil
}
