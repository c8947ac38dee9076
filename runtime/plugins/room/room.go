// Package room is the tools that act on the room they are asked in: members,
// topic, invite, kick.
//
// They run on the asker's authority. At the moment of the effect, not earlier,
// each asks the homeserver for the powers in the room and refuses unless both the
// asker and the bot could do it by hand: an approval lets a call run, it lends
// nobody power. A refusal by the homeserver changed nothing and is said so; a
// homeserver that does not answer leaves the outcome unknown.
package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"moothall/runtime/capability"
)

// Act is something that takes power in a room.
type Act string

// The acts.
const (
	ActTopic  Act = "set the topic"
	ActInvite Act = "invite people"
	ActKick   Act = "remove people"
)

// Powers is what a room says of powers at one moment. Levels are Matrix power
// levels; a creator of a version 12 room has more than any number.
type Powers struct {
	Needed int64
	Of     map[string]int64  // by full Matrix ID, of those asked about
	Member map[string]string // their membership, "" if none
}

// ErrRefused is wrapped by every error that means the homeserver answered and
// changed nothing.
var ErrRefused = errors.New("the homeserver refused")

// Homeserver is what the tools need. Every method asks or acts as the bot, at
// this moment and from no cache, and may block on the network.
type Homeserver interface {
	// Powers tells what act takes in room and what the users have.
	Powers(ctx context.Context, room string, act Act, users ...string) (Powers, error)
	Members(ctx context.Context, room string) (map[string]string, error)
	SetTopic(ctx context.Context, room, topic string) error
	Invite(ctx context.Context, room, user string) error
	Kick(ctx context.Context, room, user, reason string) error
}

// Tools makes the room's tools. bot is the bot's full Matrix ID.
func Tools(hs Homeserver, bot string) []*capability.Capability {
	t := tools{hs, bot}
	all := []capability.Surface{
		capability.SurfaceCommand, capability.SurfaceAgent, capability.SurfaceMCP,
		capability.SurfaceHTTP, capability.SurfaceSchedule, capability.SurfaceWebhook,
	}
	ask := capability.Approval{Required: true}
	list := []*capability.Capability{
		capability.Define("room.members", capability.Meta{
			Description: "List who is in this room.", Expose: all, Tags: []string{"room"},
			SideEffect: capability.SideEffectRead, Risk: capability.RiskLow,
		}, t.members),
		capability.Define("room.topic.set", capability.Meta{
			Description: "Set the topic of this room.", Expose: all, Tags: []string{"room"},
			SideEffect: capability.SideEffectWrite, Risk: capability.RiskMedium, Approval: ask,
		}, t.topic),
		capability.Define("room.invite", capability.Meta{
			Description: "Invite somebody to this room.", Expose: all, Tags: []string{"room"},
			SideEffect: capability.SideEffectWrite, Risk: capability.RiskMedium, Approval: ask,
		}, t.invite),
		capability.Define("room.kick", capability.Meta{
			Description: "Remove somebody from this room.", Expose: all, Tags: []string{"room"},
			SideEffect: capability.SideEffectDestructive, Risk: capability.RiskHigh, Approval: ask,
		}, t.kick),
	}
	for _, c := range list {
		wantUserIDs(c)
	}
	return list
}

// wantUserIDs makes the schema of an argument "user" ask for a full Matrix ID, so
// that nobody is asked to approve what cannot work.
func wantUserIDs(c *capability.Capability) {
	var s struct {
		Properties map[string]map[string]any `json:"properties"`
	}
	var whole map[string]any
	if json.Unmarshal(c.InputSchema, &s) != nil || json.Unmarshal(c.InputSchema, &whole) != nil || s.Properties["user"] == nil {
		return
	}
	s.Properties["user"]["pattern"] = `^@[!-9;-~]+:[!-~]+$`
	whole["properties"] = s.Properties
	if b, err := json.Marshal(whole); err == nil {
		c.InputSchema = b
	}
}

type tools struct {
	hs  Homeserver
	bot string
}

type said struct {
	Say string `json:"say"`
}

// maxListed bounds what room.members says in words; the output has all.
const maxListed = 50

type membersOut struct {
	Say     string   `json:"say"`
	Count   int      `json:"count"`
	Members []string `json:"members"`
}

func (t tools) members(ctx context.Context, rt *capability.Context, _ struct{}) (membersOut, error) {
	if err := t.present(ctx, rt); err != nil {
		return membersOut{}, err
	}
	m, err := t.hs.Members(ctx, rt.Session.RoomID)
	if err != nil {
		return membersOut{}, told(err)
	}
	out := membersOut{Count: len(m), Members: make([]string, 0, len(m))}
	for user := range m {
		out.Members = append(out.Members, user)
	}
	slices.Sort(out.Members)
	shown := out.Members[:min(len(out.Members), maxListed)]
	out.Say = fmt.Sprintf("%d people are here: %s", out.Count, strings.Join(shown, ", "))
	if len(shown) < out.Count {
		out.Say += fmt.Sprintf(" and %d more", out.Count-len(shown))
	}
	out.Say += "."
	return out, nil
}

// present refuses askers that are not in the room.
func (t tools) present(ctx context.Context, rt *capability.Context) error {
	asker := rt.User.MatrixUserID
	if rt.Session.RoomID == "" || asker == "" {
		return errNowhere()
	}
	p, err := t.hs.Powers(ctx, rt.Session.RoomID, ActTopic, asker)
	if err != nil {
		return before(err)
	}
	if p.Member[asker] != "join" {
		return capability.Refuse("You are not in this room.")
	}
	return nil
}

type topicIn struct {
	Topic string `json:"topic" jsonschema:"the new topic"`
}

func (t tools) topic(ctx context.Context, rt *capability.Context, in topicIn) (said, error) {
	if _, err := t.check(ctx, rt, ActTopic); err != nil {
		return said{}, err
	}
	if err := t.hs.SetTopic(ctx, rt.Session.RoomID, in.Topic); err != nil {
		return said{}, told(err)
	}
	return said{"The topic is now “" + in.Topic + "”."}, nil
}

type inviteIn struct {
	User string `json:"user" jsonschema:"full Matrix ID, like @carol:example.org"`
}

func (t tools) invite(ctx context.Context, rt *capability.Context, in inviteIn) (said, error) {
	if err := validUser(in.User); err != nil {
		return said{}, err
	}
	p, err := t.check(ctx, rt, ActInvite, in.User)
	if err != nil {
		return said{}, err
	}
	switch p.Member[in.User] {
	case "join":
		return said{}, capability.Refuse(in.User + " is in this room already.")
	case "ban":
		return said{}, capability.Refuse(in.User + " is banned from this room.")
	}
	if err := t.hs.Invite(ctx, rt.Session.RoomID, in.User); err != nil {
		return said{}, told(err)
	}
	return said{"Invited " + in.User + "."}, nil
}

type kickIn struct {
	User   string `json:"user" jsonschema:"full Matrix ID, like @carol:example.org"`
	Reason string `json:"reason,omitempty" jsonschema:"shown to them and to the room"`
}

func (t tools) kick(ctx context.Context, rt *capability.Context, in kickIn) (said, error) {
	if err := validUser(in.User); err != nil {
		return said{}, err
	}
	if in.User == t.bot {
		return said{}, capability.Refuse("I do not remove myself; take my membership away instead.")
	}
	p, err := t.check(ctx, rt, ActKick, in.User)
	if err != nil {
		return said{}, err
	}
	if m := p.Member[in.User]; m != "join" && m != "invite" {
		return said{}, capability.Refuse(in.User + " is not in this room.")
	}
	for _, who := range []string{rt.User.MatrixUserID, t.bot} {
		if p.Of[who] <= p.Of[in.User] {
			return said{}, capability.Refuse(fmt.Sprintf("%s does not outrank %s here.", who, in.User))
		}
	}
	if err := t.hs.Kick(ctx, rt.Session.RoomID, in.User, in.Reason); err != nil {
		return said{}, told(err)
	}
	return said{"Removed " + in.User + "."}, nil
}

// check refuses unless asker and bot are in the room and both have the power.
func (t tools) check(ctx context.Context, rt *capability.Context, act Act, others ...string) (Powers, error) {
	asker := rt.User.MatrixUserID
	if rt.Session.RoomID == "" || asker == "" {
		return Powers{}, errNowhere()
	}
	p, err := t.hs.Powers(ctx, rt.Session.RoomID, act, append([]string{asker, t.bot}, others...)...)
	if err != nil {
		return p, before(err)
	}
	if p.Member[asker] != "join" {
		return p, capability.Refuse(asker + " is not in this room.")
	}
	if p.Member[t.bot] != "join" {
		return p, capability.Refuse("I am not in this room.")
	}
	if p.Of[asker] < p.Needed {
		return p, capability.Refuse(fmt.Sprintf("To %s takes power level %d here, and %s has %d.", act, p.Needed, asker, p.Of[asker]))
	}
	if p.Of[t.bot] < p.Needed {
		return p, capability.Refuse(fmt.Sprintf("To %s takes power level %d here, and I (%s) have %d. A room admin can give me more.", act, p.Needed, t.bot, p.Of[t.bot]))
	}
	return p, nil
}

func errNowhere() error { return capability.Refuse("This only works for somebody in a room.") }

// maxUserID is the specification's bound, in bytes.
const maxUserID = 255

func validUser(user string) error {
	local, domain, ok := strings.Cut(strings.TrimPrefix(user, "@"), ":")
	if !ok || !strings.HasPrefix(user, "@") || local == "" || domain == "" || len(user) > maxUserID ||
		strings.ContainsFunc(user, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return capability.Refuse("That is no full Matrix ID; it should look like @carol:example.org.")
	}
	return nil
}

// before is an error from asking: nothing was done yet.
func before(err error) error {
	return capability.Failed("I could not read this room's state from the homeserver, so nothing was done.", true).Because(err)
}

// told is an error from acting.
func told(err error) error {
	if errors.Is(err, ErrRefused) {
		return capability.Failed("The homeserver refused it; nothing was changed.", true).Because(err)
	}
	return capability.Failed("The homeserver did not answer.", false).Because(err)
}
