package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Acts does in a room what the room's tools ask for, as the bot. Errors wrap
// Refused when the homeserver answered and changed nothing.
type Acts struct {
	Homeserver Homeserver
	Refused    error
}

// Levels tells what it takes to send a state event of a type (or, for the words
// "invite" and "kick", to do that), and what users have and are, fresh.
func (a Acts) Levels(ctx context.Context, room, act string, users ...string) (needed int64, of map[string]int64, member map[string]string, err error) {
	f, err := readFacts(ctx, a.Homeserver, room, users...)
	if err != nil {
		return 0, nil, nil, a.typed(err)
	}
	switch act {
	case "invite":
		needed = f.invite
	case "kick":
		needed = f.kick
	default:
		needed = f.forState(act)
	}
	of = make(map[string]int64, len(users))
	for _, u := range users {
		of[u] = f.power(u)
	}
	return needed, of, f.membership, nil
}

// Members gives the joined members with their display names.
func (a Acts) Members(ctx context.Context, room string) (map[string]string, error) {
	m, err := a.Homeserver.JoinedMembers(ctx, room)
	return m, a.typed(err)
}

// SetTopic sets the room's topic.
func (a Acts) SetTopic(ctx context.Context, room, topic string) error {
	c, err := json.Marshal(map[string]string{"topic": topic})
	if err != nil {
		return fmt.Errorf("encode topic: %w", err)
	}
	return a.typed(a.Homeserver.SetState(ctx, room, typeTopic, "", c))
}

// Invite invites user.
func (a Acts) Invite(ctx context.Context, room, user string) error {
	return a.typed(a.Homeserver.Invite(ctx, room, user))
}

// Kick removes user.
func (a Acts) Kick(ctx context.Context, room, user, reason string) error {
	return a.typed(a.Homeserver.Kick(ctx, room, user, reason))
}

// typed marks refusals: a 4xx that is no rate limit changed nothing; so did a
// 429, which is refused before it is looked at.
func (a Acts) typed(err error) error {
	if e, ok := errors.AsType[*APIError](err); ok && e.Status >= 400 && e.Status < 500 {
		return fmt.Errorf("%w: %w", a.Refused, err)
	}
	return err
}
