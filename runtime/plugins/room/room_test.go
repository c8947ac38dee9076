package room_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"moothall/runtime/capability"
	"moothall/runtime/plugins/room"
)

const (
	hall  = "!hall:example.org"
	bot   = "@moothall:example.org"
	alice = "@alice:example.org"
	bob   = "@bob:example.org"
	carol = "@carol:example.org"
)

var errDown = errors.New("connection reset")

// homeserver is one room; the zero value has nobody in it and lets nobody.
type homeserver struct {
	powers  map[string]int64
	member  map[string]string
	needed  map[room.Act]int64
	readErr error
	actErr  error
	did     []string
	asked   int
}

func (h *homeserver) Powers(_ context.Context, in string, act room.Act, users ...string) (room.Powers, error) {
	h.asked++
	if h.readErr != nil || in != hall {
		return room.Powers{}, errors.Join(h.readErr)
	}
	p := room.Powers{Needed: h.needed[act], Of: map[string]int64{}, Member: map[string]string{}}
	for _, u := range users {
		p.Of[u], p.Member[u] = h.powers[u], h.member[u]
	}
	return p, nil
}

func (h *homeserver) Members(context.Context, string) (map[string]string, error) {
	if h.actErr != nil {
		return nil, h.actErr
	}
	joined := map[string]string{}
	for u, m := range h.member {
		if m == "join" {
			joined[u] = u
		}
	}
	return joined, nil
}

func (h *homeserver) act(what string) error {
	if h.actErr != nil {
		return h.actErr
	}
	h.did = append(h.did, what)
	return nil
}

func (h *homeserver) SetTopic(_ context.Context, in, topic string) error {
	return h.act("topic " + in + " " + topic)
}

func (h *homeserver) Invite(_ context.Context, in, user string) error {
	return h.act("invite " + in + " " + user)
}

func (h *homeserver) Kick(_ context.Context, in, user, reason string) error {
	return h.act("kick " + in + " " + user + " " + reason)
}

// newHall is a room where alice and the bot can do everything and bob nothing.
func newHall() *homeserver {
	return &homeserver{
		powers: map[string]int64{alice: 100, bot: 100},
		member: map[string]string{alice: "join", bob: "join", bot: "join"},
		needed: map[room.Act]int64{room.ActTopic: 50, room.ActInvite: 50, room.ActKick: 50},
	}
}

func run(t *testing.T, h *homeserver, id, asker, in, input string) (string, error) {
	t.Helper()
	for _, c := range room.Tools(h, bot) {
		if c.ID != id {
			continue
		}
		out, err := c.Run(t.Context(), &capability.Context{
			User: capability.User{MatrixUserID: asker}, Session: capability.Session{RoomID: in},
		}, json.RawMessage(input))
		return string(out), err
	}
	t.Fatalf("no tool %s", id)
	return "", nil
}

func input(id, user string) string {
	if id == "room.topic.set" {
		return `{"topic":"Hay"}`
	}
	return fmt.Sprintf(`{"user":%q}`, user)
}

var acting = []string{"room.topic.set", "room.invite", "room.kick"}

func target(id string) string {
	if id == "room.kick" {
		return bob
	}
	return carol
}

func TestTools(t *testing.T) {
	tools := room.Tools(newHall(), bot)
	if _, err := capability.NewRegistry(tools...); err != nil {
		t.Fatal(err)
	}
	for _, c := range tools {
		if c.Meta.Approval.Required != slices.Contains(acting, c.ID) || c.Meta.SideEffect.WriteLike() != slices.Contains(acting, c.ID) {
			t.Errorf("%s: %+v", c.ID, c.Meta)
		}
		if c.Meta.Idempotent {
			t.Errorf("%s would be run again after a crash", c.ID)
		}
	}
}

func TestActs(t *testing.T) {
	for _, tt := range []struct{ id, input, did, say string }{
		{"room.topic.set", `{"topic":"Hay & <straw>"}`, "topic !hall:example.org Hay & <straw>", "The topic is now “Hay & <straw>”."},
		{"room.topic.set", `{"topic":""}`, "topic !hall:example.org ", "The topic is now “”."},
		{"room.invite", `{"user":"@carol:example.org"}`, "invite !hall:example.org @carol:example.org", "Invited @carol:example.org."},
		{"room.kick", `{"user":"@bob:example.org","reason":"hay"}`, "kick !hall:example.org @bob:example.org hay", "Removed @bob:example.org."},
	} {
		h := newHall()
		out, err := run(t, h, tt.id, alice, hall, tt.input)
		var got struct{ Say string }
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || got.Say != tt.say || !slices.Equal(h.did, []string{tt.did}) {
			t.Errorf("%s: %q %v, did %q", tt.id, got.Say, err, h.did)
		}
	}
}

// Every refusal: nothing was done, it is said why, and it is said for certain.
func TestRefusals(t *testing.T) {
	for _, id := range acting {
		for name, tt := range map[string]struct {
			change func(*homeserver)
			asker  string
			room   string
			say    string
		}{
			"the asker lacks power":                   {nil, bob, hall, "takes power level 50 here, and @bob:example.org has 0"},
			"the asker is one short":                  {func(h *homeserver) { h.powers[bob] = 49 }, bob, hall, "@bob:example.org has 49"},
			"the bot lacks power":                     {func(h *homeserver) { h.powers[bot] = 49 }, alice, hall, "and I (@moothall:example.org) have 49"},
			"the asker has left, with power":          {func(h *homeserver) { h.member[alice] = "leave" }, alice, hall, "@alice:example.org is not in this room"},
			"the asker was banned":                    {func(h *homeserver) { h.member[alice] = "ban" }, alice, hall, "@alice:example.org is not in this room"},
			"the asker is only invited":               {func(h *homeserver) { h.member[alice] = "invite" }, alice, hall, "@alice:example.org is not in this room"},
			"the bot is not in it":                    {func(h *homeserver) { h.member[bot] = "leave" }, alice, hall, "I am not in this room"},
			"no room":                                 {nil, alice, "", "only works for somebody in a room"},
			"nobody":                                  {nil, "", hall, "only works for somebody in a room"},
			"the homeserver says nothing of powers":   {func(h *homeserver) { h.readErr = errDown }, alice, hall, "nothing was done"},
			"the homeserver refuses to say of powers": {func(h *homeserver) { h.readErr = room.ErrRefused }, alice, hall, "nothing was done"},
			"it refuses the act":                      {func(h *homeserver) { h.actErr = fmt.Errorf("403: %w", room.ErrRefused) }, alice, hall, "nothing was changed"},
		} {
			t.Run(id+" "+name, func(t *testing.T) {
				h := newHall()
				if id == "room.kick" {
					h.member[carol] = "join"
				}
				if tt.change != nil {
					tt.change(h)
				}
				user := target(id)
				if id == "room.kick" {
					user = carol
				}
				_, err := run(t, h, id, tt.asker, tt.room, input(id, user))
				refused(t, h, err, tt.say)
			})
		}
	}
}

func refused(t *testing.T, h *homeserver, err error, say string) {
	t.Helper()
	e, ok := errors.AsType[*capability.Error](err)
	if !ok || !e.NoEffect || !e.Expose || !strings.Contains(e.Public, say) {
		t.Errorf("error %#v; want a refusal with %q", err, say)
	}
	if ok && strings.Contains(e.Public, "connection reset") {
		t.Error("a cause is shown")
	}
	if len(h.did) > 0 {
		t.Errorf("it did %q", h.did)
	}
}

// A homeserver that does not answer an act may have done it.
func TestUnansweredIsUnknown(t *testing.T) {
	for _, id := range acting {
		h := newHall()
		h.actErr = errDown
		_, err := run(t, h, id, alice, hall, input(id, target(id)))
		e, ok := errors.AsType[*capability.Error](err)
		if !ok || e.NoEffect || !errors.Is(err, errDown) || strings.Contains(e.Public, "reset") {
			t.Errorf("%s: %#v", id, err)
		}
	}
}

func TestPeople(t *testing.T) {
	for name, tt := range map[string]struct {
		id, user, say string
		change        func(*homeserver)
	}{
		"invite: already here":        {"room.invite", bob, "is in this room already", nil},
		"invite: banned":              {"room.invite", carol, "is banned", func(h *homeserver) { h.member[carol] = "ban" }},
		"kick: not here":              {"room.kick", carol, "is not in this room", nil},
		"kick: has left":              {"room.kick", carol, "is not in this room", func(h *homeserver) { h.member[carol] = "leave" }},
		"kick: banned":                {"room.kick", carol, "is not in this room", func(h *homeserver) { h.member[carol] = "ban" }},
		"kick: the bot":               {"room.kick", bot, "do not remove myself", nil},
		"kick: an equal of the asker": {"room.kick", bob, "@alice:example.org does not outrank", func(h *homeserver) { h.powers[bob], h.powers[bot] = 100, 101 }},
		"kick: above the asker":       {"room.kick", bob, "@alice:example.org does not outrank", func(h *homeserver) { h.powers[bob], h.powers[bot] = 101, 102 }},
		"kick: an equal of the bot":   {"room.kick", bob, "@moothall:example.org does not outrank", func(h *homeserver) { h.powers[bob], h.powers[bot] = 60, 60 }},
		"kick: oneself":               {"room.kick", alice, "does not outrank", nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall()
			if tt.change != nil {
				tt.change(h)
			}
			_, err := run(t, h, tt.id, alice, hall, input(tt.id, tt.user))
			refused(t, h, err, tt.say)
		})
	}
	t.Run("an invitation can be taken back", func(t *testing.T) {
		h := newHall()
		h.member[carol] = "invite"
		if _, err := run(t, h, "room.kick", alice, hall, input("room.kick", carol)); err != nil {
			t.Error(err)
		}
	})
}

func TestNoMatrixID(t *testing.T) {
	for _, user := range []string{
		"", "@", "carol", "carol:example.org", "@:example.org", "@carol", "@carol:", "@carol :example.org", "@carol:example.org\n", "@c\u202earol:example.org",
		"@кэрол:example.org", "@" + strings.Repeat("c", 255) + ":example.org", "#hall:example.org", "@carol\x00:example.org",
	} {
		for _, id := range []string{"room.invite", "room.kick"} {
			h := newHall()
			in, err := json.Marshal(map[string]string{"user": user})
			if err != nil {
				t.Fatal(err)
			}
			_, err = run(t, h, id, alice, hall, string(in))
			refused(t, h, err, "no full Matrix ID")
			if h.asked > 0 {
				t.Errorf("%q: the homeserver was asked", user)
			}
		}
	}
}

// Power is asked at the moment of the effect and never remembered.
func TestPowerIsAskedEachTime(t *testing.T) {
	h := newHall()
	tools := room.Tools(h, bot)
	set := func() error {
		_, err := tools[1].Run(t.Context(), &capability.Context{
			User: capability.User{MatrixUserID: alice}, Session: capability.Session{RoomID: hall},
		}, json.RawMessage(`{"topic":"Hay"}`))
		return err
	}
	if err := set(); err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{alice, bot} {
		h.powers[who], h.did = 0, nil
		refused(t, h, set(), who)
		h.powers[who] = 100
	}
}

func TestMembers(t *testing.T) {
	h := newHall()
	out, err := run(t, h, "room.members", bob, hall, `{}`) // takes no power
	want := `{"say":"3 people are here: @alice:example.org, @bob:example.org, @moothall:example.org.","count":3,"members":["@alice:example.org","@bob:example.org","@moothall:example.org"]}`
	if err != nil || out != want {
		t.Errorf("%s %v", out, err)
	}
	for i := range 60 {
		h.member[fmt.Sprintf("@guest%02d:example.org", i)] = "join"
	}
	out, err = run(t, h, "room.members", bob, hall, `{}`)
	if err != nil || !strings.Contains(out, "63 people are here") || !strings.Contains(out, "and 13 more.") || !strings.Contains(out, `"@guest59:example.org"`) {
		t.Errorf("%s %v", out, err)
	}
	_, err = run(t, h, "room.members", "@mallory:example.org", hall, `{}`)
	refused(t, h, err, "You are not in this room")
	_, err = run(t, h, "room.members", bob, "", `{}`)
	refused(t, h, err, "only works for somebody in a room")
	h.readErr = errDown
	_, err = run(t, h, "room.members", bob, hall, `{}`)
	refused(t, h, err, "nothing was done")
}
