package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge/queue"
)

// How sends behave.
const (
	lookBack = 200 // events searched for our own before a row is sent again
	sendWait = 30 * time.Second
)

// txnID derives the transaction id from the row's cause, so that a repeat in any
// process is the same transaction. Homeservers remember it for one access token
// whatever the room, so it must be unique over all rows.
func txnID(m queue.Message) string {
	h := sha256.Sum256([]byte(m.Room + "\x00" + m.Key))
	return "mh" + hex.EncodeToString(h[:16])
}

// sendNext sends the oldest row of the room whose lease ctx carries.
func (b *Bridge) sendNext(ctx context.Context) (bool, error) {
	now := b.now()
	m, ok, err := b.cfg.Rows.NextMessage(ctx, now)
	if err != nil || !ok {
		return false, err
	}
	// A first try is stamped with now. An earlier one may have been made by a
	// process that died before it could count it.
	again := m.Attempts > 0 || m.FirstTry.UnixMilli() < now.UnixMilli()
	log := zerolog.Ctx(ctx).With().Str("room_id", m.Room).Str("part", string(m.Part)).Str("key", m.Key).Logger()
	ctx = log.WithContext(ctx)
	if enc, err := b.cfg.Rows.Note(ctx, noteEncrypted+m.Room); err != nil {
		return false, fmt.Errorf("read note: %w", err)
	} else if enc != "" && m.Key != noteEncrypted+m.Room {
		log.Warn().Msg("Not sending in clear to an encrypted room")
		return true, b.drop(ctx, m, "encrypted room")
	}
	ev, err := b.send(ctx, m, again)
	if err == nil {
		if err := b.cfg.Rows.Sent(ctx, m.ID, ev, b.now()); err != nil {
			return false, fmt.Errorf("record sent: %w", err)
		}
		return true, nil
	}
	if ctx.Err() != nil {
		return false, err
	}
	if !temporary(err) {
		log.Error().Err(err).Msg("The homeserver refused a message for good, dropping it")
		return true, b.drop(ctx, m, queue.DropRefused)
	}
	wait := backoff(m.Attempts + 1)
	if e, ok := errors.AsType[*APIError](err); ok && e.RetryAfter > 0 {
		wait = e.RetryAfter
	}
	log.Warn().Err(err).Dur("wait", wait).Int("attempts", m.Attempts+1).Msg("Could not send, trying again")
	if err := b.cfg.Rows.RetryMessage(ctx, m.ID, b.now().Add(wait)); err != nil {
		return false, fmt.Errorf("put message off: %w", err)
	}
	return true, nil
}

func (b *Bridge) drop(ctx context.Context, m queue.Message, why string) error {
	if err := b.cfg.Rows.Drop(ctx, m.ID, why, b.now()); err != nil {
		return fmt.Errorf("drop message: %w", err)
	}
	return nil
}

// errRender marks a fault of ours, which must not drop the row.
var errRender = errors.New("render")

func (b *Bridge) send(ctx context.Context, m queue.Message, again bool) (string, error) {
	r, err := b.render(ctx, m)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errRender, err)
	}
	ctx, cancel := context.WithTimeout(ctx, sendWait)
	defer cancel()
	if again {
		ev, err := b.ownEcho(ctx, m)
		if ev != "" || err != nil {
			return ev, err
		}
	}
	if r.evType == typeRedaction {
		return b.cfg.Homeserver.Redact(ctx, m.Room, m.Target, txnID(m))
	}
	return b.cfg.Homeserver.Send(ctx, m.Room, r.evType, txnID(m), r.content)
}

// ownEcho looks for the event that an earlier try of this row became. The
// transaction id alone does not keep it from being said twice: homeservers forget
// it after half an hour, Dendrite also when it restarts and when we hang up
// before it has answered. A redaction may be repeated without harm.
func (b *Bridge) ownEcho(ctx context.Context, m queue.Message) (string, error) {
	if m.Part == queue.PartRedact {
		return "", nil
	}
	events, err := b.cfg.Homeserver.Recent(ctx, m.Room, lookBack)
	if err != nil {
		return "", err
	}
	want := txnID(m)
	for _, raw := range events {
		var e struct {
			ID      string                     `json:"event_id"`
			Sender  string                     `json:"sender"`
			Content map[string]json.RawMessage `json:"content"`
		}
		if json.Unmarshal(raw, &e) != nil || e.Sender != b.cfg.Bot {
			continue
		}
		var key string
		if json.Unmarshal(e.Content[keyOwn], &key) == nil && key == want {
			return e.ID, nil
		}
	}
	return "", nil
}
