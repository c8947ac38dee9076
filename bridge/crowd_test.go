package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"moothall/runtime/gate"
)

// square is a room with an admin, askers and nothing special.
func square(more ...string) roomSpec {
	s := roomSpec{id: town, name: "Square", members: map[string]int64{user("alice"): 100, user("bob"): 0, user("carol"): 0, botID: 50}}
	for _, m := range more {
		s.members[user(m)] = 50
	}
	return s
}

// inWorld runs f in a bubble with a running Moothall and the square.
func inWorld(t *testing.T, spec roomSpec, tools []string, f func(w *world)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, end := newWorld(t, dir, tools...)
		defer end()
		w.hs.Add(spec)
		f(w)
	})
}

// A hundred people who may decide react at once, over many concurrent
// transactions in which every reaction comes several times.
func TestAHundredDecideAtOnce(t *testing.T) {
	const people, posts = 100, 10
	var names []string
	for i := range people {
		names = append(names, fmt.Sprintf("admin%02d", i))
	}
	inWorld(t, square(names...), []string{"demo.bump"}, func(w *world) {
		t := w.t
		w.say("bob", "!run demo.bump")
		w.settle(5 * time.Second)
		card := w.cards()[0]
		var all []json.RawMessage
		for i, n := range names {
			all = append(all, fakeEvent{
				ID: fmt.Sprintf("$vote%d", i), Room: town, Sender: user(n), Type: typeReaction, Content: reactionTo(card, "✅"), At: time.Now(),
			}.raw())
		}
		var wg sync.WaitGroup
		for p := range posts {
			wg.Go(func() {
				batch := append(append([]json.RawMessage{}, all[p*people/posts:]...), all[:30]...)
				for try := range 2 {
					if code := putTxn(w.handler(), fmt.Sprintf("crowd%d.%d", p, try), batch); code != http.StatusOK {
						t.Errorf("post %d: %d", p, code)
					}
				}
			})
		}
		wg.Wait()
		w.settle(backFor)

		if n := w.ran.Load(); n != 1 {
			t.Errorf("the tool ran %d times", n)
		}
		if yes, no := w.events(gate.EventApproved), w.events(gate.EventDecisionRefused); yes != 1 || no != people-1 {
			t.Errorf("%d decided and %d losers were audited, want 1 and %d", yes, no, people-1)
		}
		if a := w.approvals(); len(a) != 1 || a[0].State != gate.ApprovalConsumed || len(a[0].Votes) != 1 {
			t.Errorf("approvals: %+v", a)
		}
		if b := w.bodies(); len(b) != 2 || !strings.HasPrefix(b[0], "Approval needed") || b[1] != "Run number 1." {
			t.Errorf("the room was told %q", b)
		}
		if n := w.outcomes(); n != 1 {
			t.Errorf("the card was edited %d times", n)
		}
	})
}

// outcomes counts the edits of cards.
func (w *world) outcomes() int {
	n := 0
	w.hs.with(func() {
		for _, e := range w.hs.sent {
			if e.Content["m.new_content"] != nil {
				n++
			}
		}
	})
	return n
}

// Different people ask at once for the same thing: each request is its own.
func TestManyAskAtOnce(t *testing.T) {
	inWorld(t, square(), []string{"demo.count"}, func(w *world) {
		t := w.t
		const asked = 30
		for range asked {
			w.say("bob", "!run demo.count")
			w.say("carol", "!run demo.count")
		}
		w.settle(backFor)
		if n := w.ran.Load(); n != 2*asked || len(w.bodies()) != 2*asked {
			t.Errorf("ran %d times, said %d things, want %d", n, len(w.bodies()), 2*asked)
		}
	})
}

// While a tool keeps a thread busy, decisions about that same thread act.
func TestBusyThreadDelaysNoDecision(t *testing.T) {
	inWorld(t, square(), []string{"demo.hold", "demo.bump"}, func(w *world) {
		t := w.t
		root := w.say("bob", "!run demo.bump")
		w.settle(5 * time.Second)
		in := func(who, text string) {
			w.hs.Put(town, fakeEvent{Sender: user(who), Type: typeMessage, Content: map[string]any{
				"msgtype": "m.text", "body": text, "m.relates_to": map[string]any{"rel_type": "m.thread", "event_id": root},
			}})
		}
		in("bob", "!run demo.bump")
		w.settle(5 * time.Second)
		in("bob", "!run demo.hold minutes=1")
		w.settle(5 * time.Second)
		cards := w.cards()
		w.react("alice", cards[0], "❌")
		in("bob", "!cancel "+strings.TrimPrefix(w.approvals()[1].ID, "apr_")[:8])
		w.settle(2 * time.Second)
		a := w.approvals()
		if a[0].State != gate.ApprovalRejected || a[1].State != gate.ApprovalCancelled || w.outcomes() != 2 {
			t.Errorf("states %s, %s; %d cards were brought up to date", a[0].State, a[1].State, w.outcomes())
		}
		if n := w.said("Held."); n != 0 {
			t.Error("the thread was not busy")
		}
		w.settle(70 * time.Second)
		if n := w.said("Held."); n != 1 || w.ran.Load() != 0 {
			t.Errorf("held %d times, ran %d times", n, w.ran.Load())
		}
	})
}

// T01 l, m: keys that cannot be written in a transcript.
func TestT01StrangeKeysAreIgnored(t *testing.T) {
	inWorld(t, square(), []string{"demo.bump"}, func(w *world) {
		t := w.t
		w.say("bob", "!run demo.bump")
		w.settle(5 * time.Second)
		card := w.cards()[0]
		for _, key := range []string{"", strings.Repeat("✅", 2000), "✅✅", "\u2705 no", "<b>✅</b>", "✅\x00"} {
			w.react("alice", card, key)
		}
		for _, rel := range []any{5, nil, []string{"x"}, map[string]any{"rel_type": "m.annotation"}, map[string]any{"event_id": 5, "key": "✅"}} {
			w.hs.Put(town, fakeEvent{Sender: user("alice"), Type: typeReaction, Content: map[string]any{"m.relates_to": rel}})
		}
		w.settle(backFor)
		if a := w.approvals()[0]; a.State != gate.ApprovalPending || len(w.bodies()) != 1 {
			t.Errorf("%s; said %q", a.State, w.bodies())
		}
		// A reaction to something that is no card, or in another room's name.
		other := roomSpec{id: "!other:" + domain, members: map[string]int64{user("carol"): 100, botID: 50}}
		w.hs.Add(other)
		w.hs.Put(other.id, fakeEvent{Sender: user("carol"), Type: typeReaction, Content: reactionTo(card, "✅")})
		w.react("alice", "$unknown", "✅")
		w.settle(backFor)
		if a := w.approvals()[0]; a.State != gate.ApprovalPending {
			t.Errorf("%s by a reaction elsewhere", a.State)
		}
		w.react("alice", card, "✅")
		w.settle(5 * time.Second)
		if w.ran.Load() != 1 {
			t.Error("the real one did not count")
		}
	})
}

// T02: the admin is demoted after the bot has seen her power: what counts is
// the room at the moment of the reaction.
func TestT02DemotedWithWarmCaches(t *testing.T) {
	inWorld(t, square("dave"), []string{"demo.bump"}, func(w *world) {
		t := w.t
		w.say("bob", "!run demo.bump")
		w.settle(5 * time.Second)
		w.react("alice", w.cards()[0], "✅")
		w.settle(5 * time.Second)
		w.say("bob", "!run demo.bump")
		w.settle(5 * time.Second)
		// The event that tells of it has not reached the bot when she reacts.
		w.hs.with(func() {
			w.hs.rooms[town].state[stateKey{typePowerLevels, ""}] = json.RawMessage(`{"users":{"` + user("dave") + `":50}}`)
		})
		w.react("alice", w.cards()[1], "✅")
		w.settle(5 * time.Second)
		if n := w.ran.Load(); n != 1 || w.approvals()[1].State != gate.ApprovalPending {
			t.Errorf("ran %d times; the second is %s", n, w.approvals()[1].State)
		}
		if w.events(gate.EventDecisionRefused) != 1 {
			t.Error("the refusal was not audited")
		}
	})
}

// Homeservers deliver out of order after a restart: a reaction may come before
// the bot knows the card's id, and after an hour it may come again.
func TestReactionQuickerThanTheCard(t *testing.T) {
	inWorld(t, square(), []string{"demo.bump"}, func(w *world) {
		t := w.t
		w.failing("sent") // the card is in the room, but its id is not stored
		w.say("bob", "!run demo.bump")
		w.settle(2 * time.Second)
		w.react("alice", w.cards()[0], "✅")
		w.settle(3 * time.Second)
		if w.ran.Load() != 0 {
			t.Fatal("ran too early")
		}
		w.failing()
		w.settle(backFor)
		if w.ran.Load() != 1 || len(w.cards()) != 1 {
			t.Errorf("ran %d times, %d cards", w.ran.Load(), len(w.cards()))
		}
	})
}
