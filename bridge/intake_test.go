package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"moothall/store"
)

// inbox is an intake over a real database that can be made to fail.
type inbox struct {
	*Intake
	st   *store.Store
	fail atomic.Bool
	h    http.Handler
}

func newInbox(tb testing.TB) *inbox {
	tb.Helper()
	in := &inbox{}
	var err error
	in.st, err = store.Open(tb.Context(), store.Config{
		Path: filepath.Join(tb.TempDir(), "moothall.db"),
		Fault: func(string) error {
			if in.fail.Load() {
				return errors.New("the disk is full")
			}
			return nil
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := in.st.Close(); err != nil {
			tb.Error(err)
		}
	})
	in.Intake, err = NewIntake(IntakeConfig{Inbox: in.st.Rows(), HSToken: hsToken, Bot: botID, MaxBytes: 64 << 10})
	if err != nil {
		tb.Fatal(err)
	}
	in.h = in.Handler()
	return in
}

// stored counts the events that wait to be routed.
func (in *inbox) stored(tb testing.TB) int {
	tb.Helper()
	n, _, err := in.st.Rows().Backlog(tb.Context(), in.now())
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func anEvent(n int) string {
	return fmt.Sprintf(`{"event_id":"$%d","room_id":"!r:x","sender":"@a:x","type":"m.room.message","content":{"body":"%d"},"origin_server_ts":1}`, n, n)
}

func txn(events ...string) string { return `{"events":[` + strings.Join(events, ",") + `]}` }

// C018: without the homeserver's token nothing is looked at.
func TestC018IntakeWantsTheToken(t *testing.T) {
	in := newInbox(t)
	for _, token := range []string{"", "wrong", hsToken + "x", hsToken[:len(hsToken)-1], strings.ToUpper(hsToken)} {
		w := putBody(in.h, "t1", token, txn(anEvent(1)))
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "M_FORBIDDEN") {
			t.Errorf("token %q: %d %s", token, w.Code, w.Body)
		}
		if strings.Contains(w.Body.String(), hsToken) {
			t.Error("the answer holds the token")
		}
	}
	for _, path := range []string{"/users/" + botID, "/rooms/x", "/ping"} {
		w := httptest.NewRecorder()
		method := http.MethodGet
		if path == "/ping" {
			method = http.MethodPost
		}
		in.h.ServeHTTP(w, httptest.NewRequest(method, "/_matrix/app/v1"+path, nil))
		if w.Code != http.StatusForbidden {
			t.Errorf("%s without a token: %d", path, w.Code)
		}
	}
	if n := in.stored(t); n != 0 {
		t.Errorf("%d events were stored", n)
	}
	r := httptest.NewRequest(http.MethodPut, "/_matrix/app/v1/transactions/t1?access_token="+hsToken, strings.NewReader(txn(anEvent(1))))
	w := httptest.NewRecorder()
	if in.h.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("the token in the query, as old homeservers send it: %d", w.Code)
	}
}

func TestIntakeRefusesWhatIsNoTransaction(t *testing.T) {
	in := newInbox(t)
	deep := strings.Repeat(`[`, 20_000) + strings.Repeat(`]`, 20_000)
	tests := []struct {
		name, body string
		want       int
	}{
		{"too large", txn(`{"a":"` + strings.Repeat("x", 65<<10) + `"}`), http.StatusRequestEntityTooLarge},
		{"nothing", "", http.StatusBadRequest},
		{"garbage", "\x00\xff{", http.StatusBadRequest},
		{"cut off", `{"events":[{"event_id":"$1"`, http.StatusBadRequest},
		{"a list", `[]`, http.StatusBadRequest},
		{"events is no list", `{"events":{}}`, http.StatusBadRequest},
		{"huge depth", `{"events":[` + deep + `]}`, http.StatusBadRequest},
		{"more after the end", txn() + "x", http.StatusBadRequest},
		{"no events", `{}`, http.StatusOK},
		{"null events", `{"events":null}`, http.StatusOK},
		{"only what we do not know", `{"events":[],"de.sorunome.msc2409.ephemeral":[{"type":"m.typing"}]}`, http.StatusOK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := putBody(in.h, "t", hsToken, tt.body)
			if w.Code != tt.want || !json.Valid(w.Body.Bytes()) {
				t.Errorf("%d %s, want %d", w.Code, w.Body, tt.want)
			}
		})
	}
	if w := putBody(in.h, "t", hsToken, txn(anEvent(1))); w.Code != http.StatusOK || in.stored(t) != 1 {
		t.Errorf("after all that: %d", w.Code)
	}
}

// T08: a bad event costs only itself.
func TestT08OneBadEventAmongFive(t *testing.T) {
	bad := map[string]string{
		"no object":                       `5`,
		"null":                            `null`,
		"an id that is a list":            `{"event_id":["$3"],"room_id":"!r:x","sender":"@a:x","type":"m.room.message"}`,
		"no room":                         `{"event_id":"$3","sender":"@a:x","type":"m.room.message"}`,
		"no type":                         `{"event_id":"$3","room_id":"!r:x","sender":"@a:x"}`,
		"a sender of no kind":             `{"event_id":"$3","room_id":"!r:x","sender":"alice","type":"m.room.message"}`,
		"NUL in the id":                   `{"event_id":"$3\u0000","room_id":"!r:x","sender":"@a:x","type":"m.room.message"}`,
		"an endless id":                   `{"event_id":"$` + strings.Repeat("3", 300) + `","room_id":"!r:x","sender":"@a:x","type":"m.room.message"}`,
		"invalid UTF-8":                   "{\"event_id\":\"$3\",\"room_id\":\"!r:x\",\"sender\":\"@a\xff:x\",\"type\":\"m.room.message\"}",
		"only a look-alike of the sender": `{"event_id":"$3","room_id":"!r:x","Sender":"@a:x","type":"m.room.message"}`,
	}
	for name, event := range bad {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			w := putBody(in.h, "t1", hsToken, txn(anEvent(1), anEvent(2), event, anEvent(4), anEvent(5)))
			transactions, fresh, aside := in.Counts()
			if w.Code != http.StatusOK || transactions != 1 || fresh != 4 || aside != 1 || in.stored(t) != 4 {
				t.Errorf("%d; %d transactions, %d fresh, %d aside, %d stored", w.Code, transactions, fresh, aside, in.stored(t))
			}
		})
	}
}

func TestIntakeKeepsOddButSoundEvents(t *testing.T) {
	odd := map[string]string{
		"no time":       `{"event_id":"$1","room_id":"!r:x","sender":"@a:x","type":"m.room.message"}`,
		"time is text":  `{"event_id":"$1","room_id":"!r:x","sender":"@a:x","type":"m.room.message","origin_server_ts":"soon"}`,
		"time is huge":  `{"event_id":"$1","room_id":"!r:x","sender":"@a:x","type":"m.room.message","origin_server_ts":1e300}`,
		"NUL in a body": `{"event_id":"$1","room_id":"!r:x","sender":"@a:x","type":"m.room.message","content":{"body":"a\u0000b"}}`,
		"no content":    `{"event_id":"$1","room_id":"!r:x","sender":"@a:x","type":"m.room.message","content":7}`,
	}
	for name, event := range odd {
		t.Run(name, func(t *testing.T) {
			in := newInbox(t)
			if w := putBody(in.h, "t1", hsToken, txn(event)); w.Code != http.StatusOK || in.stored(t) != 1 {
				t.Errorf("%d, %d stored", w.Code, in.stored(t))
			}
		})
	}
}

// A homeserver vouches for "sender" and for no other spelling of it, but passes
// on keys that another server put in.
func TestSenderIsReadToTheLetter(t *testing.T) {
	for _, key := range []string{"Sender", "SENDER", "\u017fender", `\u017fender`} {
		for _, format := range []string{
			`{"event_id":"$1","room_id":"!r:x","sender":"@mallory:evil","%s":"@alice:x","type":"m.reaction"}`,
			`{"event_id":"$1","room_id":"!r:x","%s":"@alice:x","sender":"@mallory:evil","type":"m.reaction"}`,
		} {
			e, err := decodeEvent(json.RawMessage(fmt.Sprintf(format, key)))
			if err != nil || e.Sender != "@mallory:evil" {
				t.Errorf("%s: %s (%v)", key, e.Sender, err)
			}
		}
	}
}

// Events are unique by their id, whatever the transaction id says.
func TestT08DuplicateDelivery(t *testing.T) {
	in := newInbox(t)
	put := func(id, body string, fresh int64) {
		t.Helper()
		_, before, _ := in.Counts()
		if w := putBody(in.h, id, hsToken, body); w.Code != http.StatusOK {
			t.Fatalf("%s: %d", id, w.Code)
		}
		if _, after, _ := in.Counts(); after-before != fresh {
			t.Errorf("%s: %d fresh events, want %d", id, after-before, fresh)
		}
	}
	put("t1", txn(anEvent(1), anEvent(2)), 2)
	t.Run("C019 the same transaction again", func(*testing.T) { put("t1", txn(anEvent(1), anEvent(2)), 0) })
	t.Run("C015 the same events under another id", func(*testing.T) { put("t2", txn(anEvent(1), anEvent(2)), 0) })
	put("t2", txn(anEvent(1), anEvent(2), anEvent(3)), 1)             // an id re-used for more
	put("t3", txn(anEvent(4), anEvent(4), anEvent(5), anEvent(4)), 2) // twice within one
	put("t4", txn(), 0)
	if n := in.stored(t); n != 5 {
		t.Errorf("%d events stored", n)
	}
}

// T04: what could not be stored is not answered 200, and comes again.
func TestC017StoreFails(t *testing.T) {
	in := newInbox(t)
	in.fail.Store(true)
	for range 3 {
		w := putBody(in.h, "t1", hsToken, txn(anEvent(1), `5`, anEvent(2)))
		if w.Code < 500 || strings.Contains(w.Body.String(), "disk") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	if _, fresh, bad := in.Counts(); fresh != 0 || bad != 0 || in.stored(t) != 0 {
		t.Errorf("counted %d fresh, %d bad", fresh, bad)
	}
	in.fail.Store(false)
	if w := putBody(in.h, "t1", hsToken, txn(anEvent(1), `5`, anEvent(2))); w.Code != http.StatusOK || in.stored(t) != 2 {
		t.Errorf("after it works again: %d, %d stored", w.Code, in.stored(t))
	}
}

func TestIntakeAnswersQueries(t *testing.T) {
	in := newInbox(t)
	tests := []struct {
		method, path string
		want         int
	}{
		{http.MethodGet, "/_matrix/app/v1/users/" + botID, 200},
		{http.MethodGet, "/_matrix/app/v1/users/%40moothall%3Aexample.org", 200},
		{http.MethodGet, "/_matrix/app/v1/users/@else:example.org", 404},
		{http.MethodGet, "/_matrix/app/v1/rooms/%23any:example.org", 404},
		{http.MethodPost, "/_matrix/app/v1/ping", 200},
		{http.MethodGet, "/_matrix/app/v1/elsewhere", 404},
		{http.MethodGet, "/", 404},
		{http.MethodPost, "/_matrix/app/v1/transactions/t", 404},
	}
	for _, tt := range tests {
		r := httptest.NewRequest(tt.method, tt.path, nil)
		r.Header.Set("Authorization", "Bearer "+hsToken)
		w := httptest.NewRecorder()
		if in.h.ServeHTTP(w, r); w.Code != tt.want || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.path, w.Code, w.Body, tt.want)
		}
	}
}

func TestIntakeWantsItsConfiguration(t *testing.T) {
	if _, err := NewIntake(IntakeConfig{HSToken: "x"}); err == nil {
		t.Error("made without an inbox")
	}
	in := newInbox(t)
	if _, err := NewIntake(IntakeConfig{Inbox: in.st.Rows()}); err == nil {
		t.Error("made without a token: an empty one would let everybody in")
	}
}

// FuzzTransaction: whatever the body, the answer is 200 or 4xx and never a
// panic, and what was stored has sound ids.
func FuzzTransaction(f *testing.F) {
	f.Add([]byte(txn(anEvent(1), anEvent(2))))
	f.Add([]byte(`{"events":[null,5,{"event_id":5}]}`))
	f.Add([]byte(`{"events":[{"event_id":"$1","room_id":"!r","sender":"@a","type":"m\u0000"}]}`))
	f.Add([]byte("{\"events\":[{\"a\":\"\xff\"}]}"))
	in := newInbox(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		w := putBody(in.h, "t", hsToken, string(body))
		if w.Code >= 500 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		var all struct{ Events []json.RawMessage }
		if json.Unmarshal(body, &all) != nil {
			return
		}
		for _, raw := range all.Events {
			if e, err := decodeEvent(raw); err == nil && (!strings.HasPrefix(e.ID, "$") || !strings.HasPrefix(e.Sender, "@") || bytes.ContainsRune([]byte(e.ID+e.Room+e.Sender+e.Type), 0)) {
				t.Errorf("accepted %q", raw)
			}
		}
	})
}
