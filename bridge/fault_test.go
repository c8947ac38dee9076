package bridge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"moothall/runtime/gate"
)

// How long a fault lasts: longer than anything is tried before it is given up;
// and how long the longest back-off is waited for afterwards.
const (
	downFor = 45 * time.Second
	backFor = 35 * time.Second
)

// The write at one step fails for a while, anywhere between the question and its
// card: nothing runs, nothing is lost, and nothing is said twice.
func TestFaultBeforeTheCard(t *testing.T) {
	for _, step := range []string{
		"accept", "lane_claim", "route", "claim", "pend", "done_work", "retry_work", "first_try", "sent", "lane_release", "*",
	} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			inWorld(t, square(), []string{"demo.bump"}, func(w *world) {
				t := w.t
				w.failing(step)
				w.say("bob", "!run demo.bump")
				w.settle(downFor)
				if n := w.ran.Load(); n != 0 {
					t.Fatalf("ran %d times", n)
				}
				w.failing()
				w.settle(backFor)
				if b := w.bodies(); len(w.cards()) != 1 || len(b) != 1 {
					t.Fatalf("after it works again the room was told %q", b)
				}
				w.react("alice", w.cards()[0], "✅")
				w.settle(backFor)
				w.wantDone(t)
			})
		})
	}
}

// wantDone checks that the one approved call ran once and the room was told so
// once, and that the card is closed.
func (w *world) wantDone(t *testing.T) {
	t.Helper()
	if n := w.ran.Load(); n != 1 {
		t.Errorf("ran %d times", n)
	}
	if b := w.bodies(); len(b) != 2 || b[1] != "Run number 1." {
		t.Errorf("the room was told %q", b)
	}
	if n := w.outcomes(); n != 1 {
		t.Errorf("the card was edited %d times", n)
	}
	if a := w.approvals(); len(a) != 1 || a[0].State != gate.ApprovalConsumed {
		t.Errorf("approvals %+v", a)
	}
}

// The write at one step fails for a while, anywhere between the reaction and the
// run: the counter stays 0 until it works again; then it is 1.
func TestFaultBeforeTheRun(t *testing.T) {
	for _, step := range []string{"accept", "lane_claim", "route", "cast", "claim", "start", "*"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			inWorld(t, square(), []string{"demo.bump"}, func(w *world) {
				t := w.t
				w.say("bob", "!run demo.bump")
				w.settle(5 * time.Second)
				w.failing(step)
				w.react("alice", w.cards()[0], "✅")
				w.settle(downFor)
				if n := w.ran.Load(); n != 0 {
					t.Fatalf("ran %d times", n)
				}
				if b := w.bodies(); len(b) != 1 {
					t.Errorf("meanwhile the room was told %q", b)
				}
				w.failing()
				w.settle(backFor)
				w.wantDone(t)
			})
		})
	}
}

// What follows the end of a run fails for a while: it ran once and is told once.
func TestFaultAfterTheEndWasRecorded(t *testing.T) {
	for _, step := range []string{"done_work", "first_try", "sent", "lane_release", "lane_renew", "retry_work", "retry_message", "put_off"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			inWorld(t, square(), []string{"demo.bump"}, func(w *world) {
				t := w.t
				w.say("bob", "!run demo.bump")
				w.settle(5 * time.Second)
				w.failing(step)
				w.react("alice", w.cards()[0], "✅")
				w.settle(downFor)
				if n := w.ran.Load(); n > 1 {
					t.Errorf("ran %d times", n)
				}
				w.failing()
				w.settle(backFor)
				w.wantDone(t)
			})
		})
	}
}

// The end of a run cannot be recorded for a long time: it ran once, is not run
// again, and the room is told that nobody knows, not that nothing was run.
func TestFaultAfterTheRun(t *testing.T) {
	for _, ask := range []bool{true, false} {
		for _, kill := range []bool{true, false} {
			name := map[bool]string{true: "approved", false: "at once"}[ask] + map[bool]string{true: ", killed", false: ""}[kill]
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				inWorld(t, square(), []string{"demo.bump", "demo.count"}, func(w *world) {
					t := w.t
					if ask {
						w.say("bob", "!run demo.bump")
						w.settle(5 * time.Second)
						w.failing("finish")
						w.react("alice", w.cards()[0], "✅")
					} else {
						w.failing("finish")
						w.say("bob", "!run demo.count")
					}
					w.settle(downFor)
					if kill {
						w.kill()
						w.start()
					} else {
						w.failing()
					}
					w.settle(backFor)
					if n := w.ran.Load(); n != 1 {
						t.Errorf("ran %d times", n)
					}
					b := w.bodies()
					if last := b[len(b)-1]; w.said("Outcome unknown") != 1 || !strings.HasPrefix(last, "Outcome unknown") || w.said("nothing was run") != 0 {
						t.Errorf("the room was told %q", b)
					}
					if e := w.executions()[0]; e.State != gate.ExecUnknown || !e.Unsettled() {
						t.Errorf("the execution is %s", e.State)
					}
				})
			})
		}
	}
}

// A short hiccup while the end is recorded costs nothing.
func TestFaultWhileTheEndIsRecorded(t *testing.T) {
	inWorld(t, square(), []string{"demo.count"}, func(w *world) {
		t := w.t
		w.failing("finish")
		w.say("bob", "!run demo.count")
		time.Sleep(60 * time.Millisecond)
		w.failing()
		w.settle(backFor)
		if w.said("Run number 1.") != 1 || len(w.bodies()) != 1 {
			t.Errorf("the room was told %q", w.bodies())
		}
	})
}

// Closing an approval fails for a while: expiry and cancelling act afterwards.
func TestFaultWhileClosing(t *testing.T) {
	for name, act := range map[string]func(w *world){
		"expiry": func(w *world) { w.later(16 * time.Minute) },
		"cancel": func(w *world) { w.say("bob", "!cancel"); time.Sleep(time.Second) },
		"leaves": func(w *world) { w.hs.with(func() { w.hs.member(w.hs.rooms[town], user("bob"), user("bob"), "leave") }) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, square(), []string{"demo.bump"}, func(w *world) {
				t := w.t
				w.say("bob", "!run demo.bump")
				w.settle(5 * time.Second)
				w.failing("close")
				act(w)
				w.settle(10 * time.Second)
				if len(w.bodies()) != 1 {
					t.Errorf("too early: %q", w.bodies())
				}
				w.failing()
				w.settle(backFor)
				if b := w.bodies(); len(b) != 2 || !strings.Contains(b[1], "Nothing was run") || w.outcomes() != 1 {
					t.Errorf("the room was told %q", b)
				}
			})
		})
	}
}

// Settling fails for a while.
func TestFaultWhileSettling(t *testing.T) {
	inWorld(t, square(), []string{"demo.break"}, func(w *world) {
		t := w.t
		w.say("bob", "!run demo.break")
		w.settle(5 * time.Second)
		w.react("alice", w.cards()[0], "✅")
		w.settle(5 * time.Second)
		var notice string
		w.hs.with(func() {
			for _, e := range w.hs.sent {
				if b, _ := e.Content["body"].(string); strings.HasPrefix(b, "Outcome unknown") {
					notice = e.ID
				}
			}
		})
		w.failing("settle")
		w.react("alice", notice, "✅")
		w.settle(backFor)
		w.failing()
		w.settle(backFor)
		if w.said("took effect") != 1 || w.ran.Load() != 1 {
			t.Errorf("the room was told %q", w.bodies())
		}
		for _, b := range w.bodies() {
			if strings.Contains(b, "hunter2") {
				t.Error("the tool's own error reached the room")
			}
		}
	})
}

// The answer to a send is lost: the homeserver knows the transaction id, and
// after half an hour, when it has forgotten it, our own event is looked for.
func TestLostAnswerIsNotSaidTwice(t *testing.T) {
	for name, wait := range map[string]time.Duration{"soon": time.Minute, "after the homeserver forgot": 31 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, square(), nil, func(w *world) {
				t := w.t
				w.failing("sent")
				w.say("bob", "!ping")
				w.settle(5 * time.Second)
				w.hs.with(func() { w.hs.broken["Send"] = &APIError{Status: 502} })
				w.failing()
				w.later(wait)
				w.hs.with(func() { delete(w.hs.broken, "Send") })
				w.settle(backFor)
				if n := w.said("Pong."); n != 1 {
					t.Errorf("said %d times", n)
				}
			})
		})
	}
}

// C050: a 429 waits as long as it says, keeps the room's order and loses nothing.
func TestC050RateLimit(t *testing.T) {
	inWorld(t, square(), nil, func(w *world) {
		t := w.t
		w.hs.with(func() { w.hs.broken["Send"] = &APIError{Status: 429, RetryAfter: 40 * time.Second} })
		w.say("bob", "!ping")
		w.settle(time.Second)
		w.say("bob", "!run time.now")
		w.hs.with(func() { delete(w.hs.broken, "Send") })
		w.settle(30 * time.Second)
		if b := w.bodies(); len(b) != 0 {
			t.Errorf("too early: %q", b)
		}
		w.settle(20 * time.Second)
		if b := w.bodies(); len(b) != 2 || b[0] != "Pong." {
			t.Errorf("the room was told %q", b)
		}
	})
}

// A message that the homeserver refuses for good does not hold up the room.
func TestRefusedMessageHoldsUpNothing(t *testing.T) {
	inWorld(t, square(), nil, func(w *world) {
		t := w.t
		w.hs.with(func() { w.hs.broken["Send"] = &APIError{Status: 413, Code: "M_TOO_LARGE"} })
		w.say("bob", "!ping")
		w.settle(2 * time.Second)
		w.hs.with(func() { delete(w.hs.broken, "Send") })
		w.say("bob", "!run time.now")
		w.settle(5 * time.Second)
		if b := w.bodies(); len(b) != 1 || !strings.HasPrefix(b[0], "It is") {
			t.Errorf("the room was told %q", b)
		}
	})
}

// T08: three hundred queued events after a long time, with events that nobody
// can make sense of among them.
func TestT08ManyEventsAfterDowntime(t *testing.T) {
	inWorld(t, square(), []string{"demo.bump", "demo.count"}, func(w *world) {
		t := w.t
		w.say("bob", "!run demo.bump")
		w.settle(5 * time.Second)
		w.stop()
		old := w.hs.now().Add(-20 * time.Hour)
		for i := range 300 {
			e := fakeEvent{Sender: user("carol"), Type: typeMessage, At: old, Content: map[string]any{"msgtype": "m.text", "body": "talk"}}
			if i%60 == 0 {
				e.Content["body"] = "!run demo.count"
			}
			w.hs.Put(town, e)
			if i%100 == 0 {
				w.hs.with(func() { w.hs.queue = append(w.hs.queue, json.RawMessage(`{"event_id":7}`)) })
			}
		}
		w.react("alice", w.cards()[0], "✅")
		w.start()
		w.settle(backFor)
		if n := w.ran.Load(); n != 1 || w.said("while I was away") != 1 || w.said("Run number 1.") != 1 || len(w.bodies()) != 3 {
			t.Errorf("ran %d times; the room was told %q", n, w.bodies())
		}
		if _, _, bad := w.in.Counts(); bad != 3 {
			t.Errorf("%d events kept aside, want 3", bad)
		}
	})
}
