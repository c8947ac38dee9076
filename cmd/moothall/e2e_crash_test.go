package main

import (
	"strings"
	"testing"

	"moothall/cmd/moothall/config"
)

// crash is a moment at which the bot's process is killed, by itself.
type crash struct {
	at      string // see trap
	asking  bool   // while the question is on its way; else while the answer is
	unknown bool   // the tool was started and its end is not recorded
}

// crashes are the named points. A step is killed right before its commit, so the
// one before it is the last that is there.
func crashes() []crash {
	return []crash{
		{at: "accept", asking: true},    // the homeserver got no 200
		{at: "route", asking: true},     // accepted, not understood yet
		{at: "claim", asking: true},     // a work row, no journal
		{at: "pend", asking: true},      // journalled, no approval
		{at: "done_work", asking: true}, // pending, not announced
		{at: "first_try", asking: true}, // announced, card not sent
		{at: "sent:1", asking: true},    // card sent, its event id not recorded
		{at: "sent:2", asking: true},    // a reaction was offered, not recorded

		{at: "accept"},
		{at: "route"},
		{at: "cast"},                  // the decision is not there
		{at: "claim"},                 // decided, resumption not journalled
		{at: "start"},                 // between decision and run
		{at: "tool", unknown: true},   // the tool did it
		{at: "finish", unknown: true}, // it ended, that is not recorded
		{at: "finish>done_work:1"},    // between result and reply
		{at: "finish>done_work:2"},    // the same, one row on
		{at: "sent:1"},                // outcome and result, each sent and not recorded
		{at: "sent:2"},
		{at: "sent:3"},
		{at: "sent:4"},
	}
}

// The bot dies at each point and a fresh process starts on the same files: the
// tool ran once, the card is closed, the thread has one ending, and nothing was
// said twice.
func TestE2ECrash(t *testing.T) {
	t.Parallel()
	for _, db := range []string{config.SQLite, config.Postgres} {
		t.Run(db, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, db).peopled()
			var over []func()
			for i, c := range crashes() {
				if !w.crash(c, i, &over) {
					break // the rest would only wait
				}
			}
			w.killedFromOutside(&over)
			pause(t.Context(), 2*settling)
			for _, check := range over {
				check()
			}
		})
	}
}

// crash plays one; over gets what is to be checked at the very end.
func (w *world) crash(c crash, i int, over *[]func()) bool {
	name := "answering-" + c.at
	if c.asking {
		name = "asking-" + c.at
	}
	whole := w
	return w.t.Run(name, func(t *testing.T) {
		w := whole.in(t)
		note := strings.NewReplacer(">", "-", ":", "-").Replace(name)
		die := func() {
			if code := w.bot.ended(patience); code != -1 {
				t.Fatalf("the bot was not killed, it ended with exit code %d", code)
			}
			w.bot.start()
		}
		var r *request
		resume := w.quiet()
		if c.asking {
			w.touch("trap", c.at)
			r = w.ask(note)
			die()
			resume()
			r.carded().ran(0)
			w.alice.react(w.room, r.card.ID, yes)
		} else {
			r = w.ask(note).carded()
			w.touch("trap", c.at)
			w.alice.react(w.room, r.card.ID, yes)
			die()
			resume()
		}
		want := []string{"Approval needed", "Written down."}
		if c.unknown {
			r.settled(i)
			want = []string{"Approval needed", "Outcome unknown", "It is settled"}
		} else {
			r.approved(w.alice)
		}
		*over = append(*over, func() { r.w = whole; r.ran(1); r.once(want...) })
	})
}

// settled sees an unknown outcome through, by reaction or by command.
func (r *request) settled(i int) {
	w := r.w
	w.t.Helper()
	notice := r.unknown()
	r.closed("Approved by " + w.alice.id.String())
	r.ran(1)
	says := "took effect"
	if i%2 == 0 {
		w.alice.react(w.room, notice.ID, yes)
	} else {
		_, short, _ := strings.Cut(body(notice), "!settle ")
		short, _, _ = strings.Cut(short, " ")
		w.alice.say(w.room, "!settle "+short+" not-done "+w.canary)
		says = "did not take effect"
	}
	w.alice.await("the thread is told what alice says", saying(r.root, w.alice.id.String()+" says that test.count "+says))
	w.unseeded(notice)
}

// killedFromOutside: after the card and before the reaction; and a question and
// a decision that are sent while the bot is down.
func (w *world) killedFromOutside(over *[]func()) {
	for _, c := range []struct {
		name     string
		ask, yes bool // sent while it is down
	}{{"after the card", false, false}, {"decided while down", false, true}, {"asked while down", true, false}} {
		whole := w
		w.t.Run(c.name, func(t *testing.T) {
			w := whole.in(t)
			resume := w.quiet()
			var r *request
			note := strings.ReplaceAll(c.name, " ", "-")
			if !c.ask {
				r = w.ask(note).carded()
			}
			w.bot.kill()
			if c.ask {
				r = w.ask(note)
			}
			if c.yes {
				w.alice.react(w.room, r.card.ID, yes)
			}
			pause(t.Context(), settling)
			w.bot.start()
			resume()
			r.carded()
			if !c.yes {
				r.ran(0)
				w.alice.react(w.room, r.card.ID, yes)
			}
			r.approved(w.alice)
			*over = append(*over, func() { r.w = whole; r.ran(1); r.once("Approval needed", "Written down.") })
		})
	}
}

// in is the same world for a subtest, which then fails by itself.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	sub := &world{
		t: t, dir: w.dir, canary: w.canary, cfg: w.cfg, hs: w.hs, bot: w.bot, room: w.room, beat: w.beat,
		alice: w.alice.in(t), bob: w.bob.in(t), carol: w.carol.in(t),
	}
	outer := w.bot.t
	w.bot.t = t
	t.Cleanup(func() { w.bot.t = outer })
	return sub
}

// A write that fails for a while delays and loses nothing: before the run the
// tool did not run and runs afterwards; after it the outcome is stated unknown.
func TestE2EFailingWrites(t *testing.T) {
	t.Parallel()
	whole := newWorld(t, config.SQLite).peopled()
	var over []func()
	for _, c := range []struct {
		step    string
		asking  bool
		ran     int // while it fails; -1: either
		unknown bool
	}{
		{step: "accept", asking: true},
		{step: "route", asking: true},
		{step: "claim", asking: true},
		{step: "pend", asking: true},
		{step: "done_work", asking: true},
		{step: "first_try", asking: true},
		{step: "sent", asking: true},
		{step: "lane_claim", asking: true},
		{step: "accept"},
		{step: "route"},
		{step: "cast"},
		{step: "claim"},
		{step: "start"},
		{step: "finish", ran: 1, unknown: true},
		{step: "done_work", ran: 1},
		{step: "sent", ran: 1},
		{step: "lane_release", ran: -1}, // then a lane is free when its lease ends
	} {
		name := "answering-" + c.step
		if c.asking {
			name = "asking-" + c.step
		}
		t.Run(name, func(t *testing.T) {
			w := whole.in(t)
			var r *request
			if c.asking {
				w.touch("trap", "fail "+c.step)
				r = w.ask(name)
			} else {
				r = w.ask(name).carded()
				w.touch("trap", "fail "+c.step)
				w.alice.react(w.room, r.card.ID, yes)
			}
			pause(t.Context(), settling)
			if c.ran >= 0 {
				r.ran(c.ran)
			}
			w.remove("trap")
			if c.asking {
				r.carded().ran(0)
				w.alice.react(w.room, r.card.ID, yes)
			}
			want := []string{"Approval needed", "Written down."}
			if c.unknown {
				r.unknown()
				r.settled(0)
				want = []string{"Approval needed", "Outcome unknown", "It is settled"}
			} else {
				r.approved(w.alice)
			}
			over = append(over, func() { r.w = whole; r.ran(1); r.once(want...) })
		})
	}
	pause(t.Context(), 2*settling)
	for _, check := range over {
		check()
	}
}
