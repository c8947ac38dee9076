package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/commands"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// maxAttempts is how often a row is tried before it is given up, if it may be
// (see [mayGiveUp]); with the back-off that is about half a minute.
const maxAttempts = 8

// errLater puts a row off without counting it as a failure.
var errLater = errors.New("not yet")

// effects is what handling a row causes, committed with its end.
type effects struct {
	out  []queue.Message
	more []queue.Work
}

// workNext handles the oldest row of the lane whose lease ctx carries.
func (b *Bridge) workNext(ctx context.Context) (bool, error) {
	w, ok, err := b.cfg.Rows.NextWork(ctx, b.now())
	if err != nil || !ok {
		return false, err
	}
	log := zerolog.Ctx(ctx).With().Str("kind", string(w.Kind)).Str("ref", w.Ref).Logger()
	ctx = log.WithContext(ctx)
	fx, err := b.do(ctx, w)
	if err == nil {
		if err := b.cfg.Rows.DoneWork(ctx, w.ID, fx.out, fx.more, b.now()); err != nil {
			return false, fmt.Errorf("record work done: %w", err)
		}
		return true, nil
	}
	return b.failed(ctx, w, err)
}

// failed puts a row off, or gives it up and says so in the room.
func (b *Bridge) failed(ctx context.Context, w queue.Work, err error) (bool, error) {
	if errors.Is(err, queue.ErrFenced) || ctx.Err() != nil {
		return false, err
	}
	log := zerolog.Ctx(ctx)
	wait := backoff(w.Attempts + 1)
	if errors.Is(err, errLater) || errors.Is(err, gate.ErrUndecided) {
		log.Info().Err(err).Int("attempts", w.Attempts).Msg("Putting work off")
		if err := b.cfg.Rows.RetryWork(ctx, w.ID, b.now().Add(wait), "later"); err != nil {
			return false, fmt.Errorf("put work off: %w", err)
		}
		return true, nil
	}
	log.Error().Err(err).Int("attempts", w.Attempts).Msg("Work failed")
	if w.Attempts+1 < maxAttempts || !mayGiveUp(w, err) {
		if err := b.cfg.Rows.RetryWork(ctx, w.ID, b.now().Add(wait), "failed"); err != nil {
			return false, fmt.Errorf("put work off: %w", err)
		}
		return true, nil
	}
	out, gerr := b.sorry(ctx, w)
	if gerr != nil {
		return false, gerr
	}
	if err := b.cfg.Rows.DropWork(ctx, w.ID, "gave up", out, b.now()); err != nil {
		return false, fmt.Errorf("give work up: %w", err)
	}
	return true, nil
}

// mayGiveUp: what only tells a room something is never given up, nor is a
// decision, which waits in a lane of its own and holds up nothing. Nor is what
// may have run a tool: its end, or that nobody knows it, has still to be
// recorded, and "nothing was run" could be a lie.
func mayGiveUp(w queue.Work, err error) bool {
	switch w.Kind {
	case queue.KindMessage:
		var t task
		return json.Unmarshal(w.Data, &t) != nil || t.Name != "run" || errors.Is(err, gate.ErrClaim)
	case queue.KindResume:
		return errors.Is(err, gate.ErrClaim)
	case queue.KindInvite:
		return true
	case queue.KindAnswer, queue.KindReaction, queue.KindLeft, queue.KindRedacted,
		queue.KindAnnounce, queue.KindShow, queue.KindExpire, queue.KindReport:
	}
	return false
}

// sorry is the one sentence in the room for work that was given up.
func (b *Bridge) sorry(ctx context.Context, w queue.Work) ([]queue.Message, error) {
	var t task
	switch w.Kind {
	case queue.KindMessage:
		if json.Unmarshal(w.Data, &t) != nil {
			return nil, nil //nolint:nilerr // a row nobody can read has no room to say it in
		}
	case queue.KindResume:
		v, err := b.cfg.Gate.View(ctx, w.Ref)
		if err != nil {
			return nil, fmt.Errorf("give work up: %w", err)
		}
		p, perr := placeOf(v.Origin)
		if perr != nil {
			return nil, nil //nolint:nilerr // no room to say it in
		}
		t = task{Room: p.Room, Root: p.Root, Event: p.Event}
	case queue.KindAnswer, queue.KindReaction, queue.KindInvite, queue.KindAnnounce, queue.KindShow, queue.KindExpire, queue.KindReport, queue.KindLeft, queue.KindRedacted:
		return nil, nil
	}
	d := content.Say("I could not record this, so nothing was run. Please try again later; the log has it under " + w.Ref + ".")
	return []queue.Message{b.say("sorry/"+w.Key, t, content.Notice(d))}, nil
}

// do carries out one row. It bears being called again for the same row.
func (b *Bridge) do(ctx context.Context, w queue.Work) (effects, error) {
	switch w.Kind {
	case queue.KindMessage, queue.KindAnswer, queue.KindReaction, queue.KindInvite, queue.KindLeft, queue.KindRedacted:
		var t task
		if json.Unmarshal(w.Data, &t) != nil {
			zerolog.Ctx(ctx).Error().Msg("A work row cannot be read, dropping it")
			return effects{}, nil //nolint:nilerr // trying again cannot make it readable
		}
		return b.doTask(ctx, w, t)
	case queue.KindAnnounce:
		return b.announce(ctx, w.Ref)
	case queue.KindShow:
		return b.show(ctx, w.Ref)
	case queue.KindExpire:
		return b.expire(ctx, w)
	case queue.KindResume:
		return b.resume(ctx, w.Ref)
	case queue.KindReport:
		return b.report(ctx, w)
	}
	return effects{}, nil
}

func (b *Bridge) doTask(ctx context.Context, w queue.Work, t task) (effects, error) {
	switch {
	case w.Kind == queue.KindReaction:
		return b.reaction(ctx, w, t)
	case w.Kind == queue.KindInvite:
		return b.invited(ctx, t)
	case w.Kind == queue.KindLeft:
		return b.left(ctx, t)
	case w.Kind == queue.KindRedacted:
		return b.redacted(ctx, t)
	case w.Kind == queue.KindAnswer:
		return b.answerInWords(ctx, t)
	case t.Hint != "":
		return b.hint(ctx, t)
	}
	reply, err := b.cfg.Commands.Run(ctx, commands.Request{
		Line: commands.Line{Name: t.Name, Rest: t.Rest}, Actor: actor(t.Sender), Origin: t.origin(),
		Cause: t.Event, Target: t.Target,
	})
	if err != nil {
		return effects{}, fmt.Errorf("command %s: %w", t.Name, err)
	}
	d := docOf(reply)
	if d == nil {
		return effects{}, nil
	}
	return effects{out: []queue.Message{b.say("reply/"+t.Event, t, content.Notice(d))}}, nil
}

func actor(user string) capability.Actor {
	return capability.Actor{ID: user, Kind: capability.KindUser}
}

// expire acts on a deadline. The clock of the row and of the gate are the same,
// so a row that comes early is only put off.
func (b *Bridge) expire(ctx context.Context, w queue.Work) (effects, error) {
	v, err := b.cfg.Gate.View(ctx, w.Ref)
	if err != nil {
		return effects{}, err
	}
	if v.State.Open() && !v.ExpiredAt(b.now()) {
		return effects{}, errLater
	}
	_, err = b.cfg.Gate.Expire(ctx, w.Ref)
	return effects{}, err
}

// resume runs what was approved. How it ended is told by the report row that the
// gate writes with the end; only a resumption that made no execution is told
// here, and those of approvals that ended otherwise are told by their card.
func (b *Bridge) resume(ctx context.Context, approvalID string) (effects, error) {
	res, err := b.cfg.Gate.Resume(ctx, approvalID, gate.ResumeOptions{})
	if err != nil {
		return effects{}, fmt.Errorf("resume: %w", err)
	}
	log := zerolog.Ctx(ctx).Info().Str("approval_id", approvalID).Str("execution_id", res.ExecutionID).Str("status", string(res.Status))
	if res.Error != nil {
		log = log.Str("code", string(res.Error.Code))
	}
	log.Msg("Resumed an approved call")
	return effects{}, nil
}

// reaction handles a reaction on one of our events.
func (b *Bridge) reaction(ctx context.Context, w queue.Work, t task) (effects, error) {
	verdict := b.cfg.Keys.Verdict(t.Key)
	if verdict == content.None {
		zerolog.Ctx(ctx).Debug().Msg("Ignored a reaction with a key that means nothing here")
		return effects{}, nil
	}
	m, err := b.cfg.Rows.MessageByEvent(ctx, t.Room, t.Target)
	if errors.Is(err, queue.ErrNotFound) {
		// Perhaps the card's event id is not known yet: the reaction can be
		// quicker than the answer to our own send.
		begun, err := b.cfg.Rows.CardsBegun(ctx, t.Room, w.Created.Add(-reactionHold))
		if err != nil {
			return effects{}, fmt.Errorf("look for cards: %w", err)
		}
		if begun && b.now().Sub(w.Created) < reactionHold {
			return effects{}, errLater
		}
		return effects{}, nil
	}
	if err != nil {
		return effects{}, fmt.Errorf("look up reaction's target: %w", err)
	}
	if m.Part != queue.PartCard && m.Part != queue.PartUnknown {
		return effects{}, nil
	}
	t.Root, t.Target = m.Root, m.Ref
	if !strings.HasSuffix(t.Sender, ":"+b.cfg.Domain) {
		// Whoever may not speak to the bot may not decide by a tap either.
		t.Hint = hintForeign
		return b.hint(ctx, t)
	}
	return b.verdict(ctx, t, verdict == content.Approve)
}

// reactionHold is how long a reaction on an unknown event waits for a card of
// its room that is being sent.
const reactionHold = time.Minute

func (b *Bridge) answerInWords(ctx context.Context, t task) (effects, error) {
	return b.verdict(ctx, t, t.Yes)
}

// verdict counts a yes or no on a card or on the notice of an unknown outcome.
// Somebody whose answer does not count is told why once for each card.
func (b *Bridge) verdict(ctx context.Context, t task, yes bool) (effects, error) {
	say, quiet, err := b.cfg.Commands.DecideTarget(ctx, t.Target, actor(t.Sender), yes, t.Event)
	if err != nil || quiet || say == "" {
		return effects{}, err
	}
	// The row's key makes the hint unique, so that a repeat says it only once.
	key := noteHint + t.Target + "/" + t.Sender
	if _, err := b.cfg.Rows.MessageByKey(ctx, key); err == nil {
		return effects{}, nil
	} else if !errors.Is(err, queue.ErrNotFound) {
		return effects{}, fmt.Errorf("look up hint: %w", err)
	}
	d := new(content.Doc).P(content.T(t.Sender+": "), content.T(say))
	return effects{out: []queue.Message{b.say(key, t, content.Notice(d))}}, nil
}
