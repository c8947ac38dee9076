package bridge

import (
	"testing"
	"time"
)

// What is asked in clear in a room that is encrypted is not even run: whoever
// sends it there is not who the room's people think.
func TestNothingRunsInAnEncryptedRoom(t *testing.T) {
	inWorld(t, square(), []string{"demo.count"}, func(w *world) {
		t := w.t
		w.say("bob", "!run demo.count")
		w.settle(5 * time.Second)
		key := ""
		w.hs.Put(town, fakeEvent{Sender: user("alice"), Type: typeEncryption, StateKey: &key, Content: map[string]any{"algorithm": "m.megolm.v1.aes-sha2"}})
		w.settle(5 * time.Second)
		w.say("bob", "!run demo.count")
		w.settle(5 * time.Second)
		if n := w.ran.Load(); n != 1 {
			t.Errorf("ran %d times; want 1, from before", n)
		}
	})
}
