package bridge

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"testing"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

func TestStandingSaysWhoHasPower(t *testing.T) {
	const (
		v10 = `{"creator":"@alice:x","room_version":"10"}`
		v12 = `{"room_version":"12","additional_creators":["@carol:x"]}`
	)
	tests := []struct {
		name, create, sender, levels, who string
		want                              int64
	}{
		{"listed", v10, "@alice:x", `{"users":{"@bob:x":50}}`, "@bob:x", 50},
		{"not listed", v10, "@alice:x", `{"users":{"@bob:x":50}}`, "@eve:x", 0},
		{"users_default", v10, "@alice:x", `{"users_default":25}`, "@eve:x", 25},
		{"the creator of an old room is nothing special beside power levels", v10, "@alice:x", `{"users":{}}`, "@alice:x", 0},
		{"no power levels: the creator", v10, "@alice:x", "", "@alice:x", 100},
		{"no power levels: nobody else", v10, "@alice:x", "", "@bob:x", 0},
		{"no power levels, no create event: nobody", "", "", "", "@alice:x", 0},
		{"an empty id has no power by accident", "", "", "", "", 0},
		{"version 11: the sender", `{"room_version":"11"}`, "@alice:x", "", "@alice:x", 100},
		{"version 12: the creator outranks all", v12, "@alice:x", `{"users":{"@bob:x":100}}`, "@alice:x", math.MaxInt64},
		{"version 12: an additional creator does, too", v12, "@alice:x", `{}`, "@carol:x", math.MaxInt64},
		{"version 12: without power levels", v12, "@alice:x", "", "@alice:x", math.MaxInt64},
		{"version 12: others by the list", v12, "@alice:x", `{"users":{"@bob:x":51}}`, "@bob:x", 51},
		{"version 13", `{"room_version":"13"}`, "@alice:x", `{}`, "@alice:x", math.MaxInt64},
		{"an unstable version is not taken for 12", `{"room_version":"org.matrix.hydra.11"}`, "@alice:x", `{}`, "@alice:x", 0},
		{"additional creators of an old room count for nothing", `{"room_version":"10","additional_creators":["@carol:x"]}`, "@alice:x", `{}`, "@carol:x", 0},
		{"one odd additional creator: none of them", `{"room_version":"12","additional_creators":["@carol:x",5]}`, "@alice:x", `{}`, "@carol:x", 0},
		{"… and the creator stays", `{"room_version":"12","additional_creators":{"a":1}}`, "@alice:x", `{}`, "@alice:x", math.MaxInt64},
		{"a level as a string, as old rooms have", v10, "@alice:x", `{"users":{"@bob:x":"50"}}`, "@bob:x", 50},
		{"… with spaces", v10, "@alice:x", `{"users":{"@bob:x":" 50 "}}`, "@bob:x", 50},
		{"a level that is no integer", v10, "@alice:x", `{"users":{"@bob:x":99.5}}`, "@bob:x", 0},
		{"a level that is no number", v10, "@alice:x", `{"users":{"@bob:x":"admin"}}`, "@bob:x", 0},
		{"a level beyond sense", v10, "@alice:x", `{"users":{"@bob:x":1e300}}`, "@bob:x", 0},
		{"infinity", v10, "@alice:x", `{"users":{"@bob:x":"inf"}}`, "@bob:x", 0},
		{"a null level is the default", v10, "@alice:x", `{"users":{"@bob:x":null},"users_default":7}`, "@bob:x", 7},
		{"a negative level", v10, "@alice:x", `{"users":{"@bob:x":-5}}`, "@bob:x", -5},
		{"users is no object: nobody", v10, "@alice:x", `{"users":[],"users_default":100}`, "@bob:x", math.MinInt64},
		{"the content is no object: nobody", v10, "@alice:x", `[]`, "@alice:x", math.MinInt64},
		{"the content is null: nobody", v10, "@alice:x", `null`, "@alice:x", math.MinInt64},
		{"the content is no JSON: nobody", v10, "@alice:x", `{`, "@alice:x", math.MinInt64},
		{"a key that differs by case is another key", v10, "@alice:x", `{"users":{},"Users":{"@bob:x":100},"u\u017fers":{"@bob:x":100}}`, "@bob:x", 0},
		{"… in the create event, too", `{"room_version":"10","Room_version":"12"}`, "@alice:x", `{}`, "@alice:x", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var create, levels json.RawMessage
			if tt.create != "" {
				create = json.RawMessage(tt.create)
			}
			if tt.levels != "" {
				levels = json.RawMessage(tt.levels)
			}
			if got := parseStanding(create, tt.sender, levels).power(tt.who); got != tt.want {
				t.Errorf("power of %s: %d, want %d", tt.who, got, tt.want)
			}
		})
	}
}

func TestStandingSaysWhatItTakes(t *testing.T) {
	tests := []struct {
		name, levels        string
		topic, invite, kick int64
	}{
		{"nothing said", `{}`, 50, 0, 50},
		{"all said", `{"events":{"m.room.topic":30},"state_default":60,"invite":"10","kick":70}`, 30, 10, 70},
		{"the default of states", `{"state_default":60}`, 60, 0, 50},
		{"an odd level is the default", `{"events":{"m.room.topic":{}},"state_default":60}`, 60, 0, 50},
		{"malformed: nothing is allowed", `{"events":5}`, math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{"no power levels: all may", ``, 0, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var levels json.RawMessage
			if tt.levels != "" {
				levels = json.RawMessage(tt.levels)
			}
			s := parseStanding(nil, "@alice:x", levels)
			if s.forState(typeTopic) != tt.topic || s.invite != tt.invite || s.kick != tt.kick {
				t.Errorf("topic %d, invite %d, kick %d; want %d, %d, %d", s.forState(typeTopic), s.invite, s.kick, tt.topic, tt.invite, tt.kick)
			}
		})
	}
}

// The content of a create event from version 11 on is not asked for the creator.
func TestCreatorIsWhoMadeTheRoom(t *testing.T) {
	for version, want := range map[string]string{"10": user("eve"), "11": user("alice"), "12": user("alice"), "org.example.new": user("alice")} {
		hs := newFakeHS(t)
		hs.Add(roomSpec{id: town, version: version, members: map[string]int64{botID: 50}})
		hs.rooms[town].state[stateKey{typeCreate, ""}] = json.RawMessage(`{"room_version":"` + version + `","creator":"` + user("eve") + `"}`)
		_, got, err := createOf(t.Context(), hs, town)
		if err != nil || got != want {
			t.Errorf("version %s: creator %s (%v), want %s", version, got, err, want)
		}
	}
}

func TestT02ElectorsGiveThreeAnswers(t *testing.T) {
	tests := []struct {
		name   string
		who    capability.Actor
		change func(*fakeHS)
		want   gate.Answer
	}{
		{"an admin", actor(user("alice")), nil, gate.AnswerYes},
		{"somebody without power", actor(user("bob")), nil, gate.AnswerNo},
		{"somebody who was never there", actor(user("eve")), nil, gate.AnswerNo},
		{"C146 the bot", actor(botID), nil, gate.AnswerNo},
		{"nobody", capability.Actor{}, nil, gate.AnswerNo},
		{"a machine with an admin's name", capability.Actor{ID: user("alice"), Kind: capability.KindAutomation}, nil, gate.AnswerNo},
		{"an admin who was banned", actor(user("alice")), func(h *fakeHS) { h.member(h.rooms[town], user("dave"), user("alice"), "ban") }, gate.AnswerNo},
		{"an admin who is only invited", actor(user("alice")), func(h *fakeHS) { h.member(h.rooms[town], user("dave"), user("alice"), "invite") }, gate.AnswerNo},
		{"the homeserver is down", actor(user("alice")), func(h *fakeHS) { h.down = true }, gate.AnswerCannotTell},
		{"the homeserver is busy", actor(user("alice")), func(h *fakeHS) { h.broken["State"] = &APIError{Status: http.StatusTooManyRequests} }, gate.AnswerCannotTell},
		{"the homeserver fails", actor(user("alice")), func(h *fakeHS) { h.broken["State"] = &APIError{Status: 500} }, gate.AnswerCannotTell},
		{"the bot was removed", actor(user("alice")), func(h *fakeHS) { h.member(h.rooms[town], user("dave"), botID, "leave") }, gate.AnswerNo},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hs := newFakeHS(t)
			hs.Add(roomSpec{id: town, members: map[string]int64{user("alice"): 100, user("bob"): 0, botID: 50}})
			if tt.change != nil {
				tt.change(hs)
			}
			a := gate.Approval{Origin: task{Room: town, Root: "$r", Event: "$r"}.origin()}
			got, why := Electors{Homeserver: hs, Bot: botID, MinPower: 50}.MayDecide(t.Context(), a, tt.who)
			if got != tt.want || (got == gate.AnswerNo) != (why != "" && strings.HasSuffix(why, ".")) {
				t.Errorf("answer %d (%s), want %d", got, why, tt.want)
			}
		})
	}
	var zero gate.Approval
	if got, _ := (Electors{Homeserver: newFakeHS(t), Bot: botID}).MayDecide(t.Context(), zero, actor(user("alice"))); got != gate.AnswerNo {
		t.Error("an approval of no room can be decided")
	}
}

func TestTemporaryFailures(t *testing.T) {
	for err, want := range map[error]bool{
		errDown: true, ErrNoState: false, errors.New("anything"): true,
		&APIError{Status: 500}: true, &APIError{Status: 429}: true, &APIError{Status: 401}: true,
		&APIError{Status: 403}: false, &APIError{Status: 404}: false, &APIError{Status: 413}: false,
	} {
		if got := temporary(err); got != want {
			t.Errorf("%v: temporary %t", err, got)
		}
	}
	if temporary(nil) {
		t.Error("no error is temporary")
	}
}

// FuzzStanding: whatever a room's state says, nothing panics, and nobody gets
// power without being named by the exact key or a default.
func FuzzStanding(f *testing.F) {
	f.Add(`{"room_version":"12","additional_creators":["@c:x"]}`, "@a:x", `{"users":{"@b:x":"50"},"users_default":1}`)
	f.Add(`{"creator":5}`, "", `{"users":[]}`)
	f.Add(``, "", ``)
	f.Fuzz(func(t *testing.T, create, sender, levels string) {
		s := parseStanding(json.RawMessage(create), sender, json.RawMessage(levels))
		if s.power("@mallory:evil.example") > 0 && !strings.Contains(create+sender+levels, "mallory") &&
			!strings.Contains(levels, "users_default") && !strings.Contains(create+sender+levels, `\u`) {
			t.Errorf("power from nowhere: %q %q %q", create, sender, levels)
		}
		s.forState(typeTopic)
	})
}
