package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// standing is what a room says of powers, read at one moment.
type standing struct {
	users        map[string]int64
	usersDefault int64
	events       map[string]int64
	stateDefault int64
	invite, kick int64
	creators     []string // of a room version whose creators outrank everybody
}

// creatorPower is what a version 12 creator has.
const creatorPower = math.MaxInt64

// power is the level of user.
func (s standing) power(user string) int64 {
	if slices.Contains(s.creators, user) {
		return creatorPower
	}
	if p, ok := s.users[user]; ok {
		return p
	}
	return s.usersDefault
}

// forState is the level needed to send a state event of a type.
func (s standing) forState(evType string) int64 {
	if p, ok := s.events[evType]; ok {
		return p
	}
	return s.stateDefault
}

// level reads a power level: an integer, or a string of one as old rooms have.
type level struct {
	set bool
	n   int64
}

// UnmarshalJSON implements json.Unmarshaler; what is no level counts as absent.
func (l *level) UnmarshalJSON(b []byte) error {
	s := strings.Trim(strings.TrimSpace(string(b)), `"`)
	if f, err := strconv.ParseFloat(strings.TrimSpace(s), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		l.set, l.n = true, int64(f)
	}
	return nil
}

func (l *level) or(def int64) int64 {
	if l != nil && l.set {
		return l.n
	}
	return def
}

// parseStanding makes sense of a create event (with its sender) and a
// power-levels event; either may be nil. Without power levels only the creator
// has power, as the specification says.
func parseStanding(create json.RawMessage, createSender string, levels json.RawMessage) standing {
	var c struct {
		Creator, Version string
		Additional       []string
	}
	if exact(create, map[string]any{"additional_creators": &c.Additional}) != nil {
		c.Additional = nil // all of them or nobody
	}
	_ = exact(create, map[string]any{"creator": &c.Creator, "room_version": &c.Version}) // an odd field counts as absent
	if createSender != "" {
		c.Creator = createSender
	}
	s := standing{users: map[string]int64{}, events: map[string]int64{}}
	if creatorsOutrank(c.Version) {
		s.creators = append([]string{c.Creator}, c.Additional...)
	}
	if levels == nil {
		if c.Creator != "" {
			s.users[c.Creator] = 100
		}
		return s
	}
	var p struct {
		Users, Events                            map[string]*level
		UsersDefault, StateDefault, Invite, Kick *level
	}
	if exact(levels, map[string]any{
		"users": &p.Users, "users_default": &p.UsersDefault, "events": &p.Events,
		"state_default": &p.StateDefault, "invite": &p.Invite, "kick": &p.Kick,
	}) != nil {
		return standing{stateDefault: math.MaxInt64, invite: math.MaxInt64, kick: math.MaxInt64, usersDefault: math.MinInt64}
	}
	s.usersDefault, s.stateDefault = p.UsersDefault.or(0), p.StateDefault.or(50)
	s.invite, s.kick = p.Invite.or(0), p.Kick.or(50)
	for u, l := range p.Users {
		s.users[u] = l.or(s.usersDefault)
	}
	for e, l := range p.Events {
		s.events[e] = l.or(s.stateDefault)
	}
	return s
}

// creatorsOutrank: from room version 12 on, creators are above all levels.
// Versions that are no number are older or experimental and are not trusted so.
func creatorsOutrank(version string) bool {
	n, err := strconv.Atoi(version)
	return err == nil && n >= 12
}

// sentByCreator: from room version 11 on the create event does not name the
// creator. Versions that are no number are taken for new ones here: asking for
// the sender is right in all of them.
func sentByCreator(version string) bool {
	n, err := strconv.Atoi(version)
	return version != "" && (err != nil || n >= 11)
}

// facts is what is known of people in a room, fresh from the homeserver.
type facts struct {
	standing
	membership map[string]string
}

// readFacts asks the homeserver for powers and for the membership of users, at
// this moment and from no cache.
func readFacts(ctx context.Context, hs Homeserver, room string, users ...string) (facts, error) {
	var create, levels json.RawMessage
	var sender string
	members := make([]string, len(users))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		var err error
		create, sender, err = createOf(ctx, hs, room)
		return err
	})
	g.Go(func() error {
		var err error
		levels, err = hs.State(ctx, room, typePowerLevels, "")
		if errors.Is(err, ErrNoState) {
			levels = nil
			return nil
		}
		if err != nil {
			return fmt.Errorf("power levels: %w", err)
		}
		return nil
	})
	for i, u := range users {
		g.Go(func() error {
			raw, err := hs.State(ctx, room, typeMember, u)
			if errors.Is(err, ErrNoState) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("membership: %w", err)
			}
			if exact(raw, map[string]any{"membership": &members[i]}) != nil {
				members[i] = ""
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return facts{}, err
	}
	f := facts{standing: parseStanding(create, sender, levels), membership: make(map[string]string, len(users))}
	for i, u := range users {
		f.membership[u] = members[i]
	}
	return f, nil
}

// createOf gives the create event's content and the creator. From room version
// 11 on that is the event's sender, whatever the content says; the sender is
// only in the full event, which is asked for then and when the content names
// nobody.
func createOf(ctx context.Context, hs Homeserver, room string) (json.RawMessage, string, error) {
	raw, err := hs.State(ctx, room, typeCreate, "")
	if errors.Is(err, ErrNoState) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("create event: %w", err)
	}
	var creator, version string
	_ = exact(raw, map[string]any{"creator": &creator, "room_version": &version}) // an odd field counts as absent
	if creator != "" && !sentByCreator(version) {
		return raw, creator, nil
	}
	sender, err := hs.CreateSender(ctx, room)
	if err != nil {
		return nil, "", fmt.Errorf("creator: %w", err)
	}
	return raw, sender, nil
}
