package bridge

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"github.com/tidwall/gjson"

	"moothall/bridge/queue"
)

// maxEvents bounds one transaction; homeservers send at most 100.
const maxEvents = 10_000

// Intake is the appservice's HTTP side (Application Service API). It answers 200
// to a transaction only after its events are rows, and 5xx when they could not
// be stored, so that the homeserver sends them again. Events are unique by their
// id: transaction ids are not trusted, because homeservers re-use one for a
// larger batch. It is safe for concurrent use.
type Intake struct {
	inbox    queue.Inbox
	token    [sha256.Size]byte
	maxBytes int64
	bot      string
	now      func() time.Time
	log      zerolog.Logger

	transactions, events, bad atomic.Int64
}

// IntakeConfig is everything an Intake needs.
type IntakeConfig struct {
	Inbox   queue.Inbox
	HSToken string
	Bot     string // the one user the homeserver may ask for
	// MaxBytes bounds a transaction's body. Default 32 MiB.
	MaxBytes int64
	Now      func() time.Time // default time.Now
	Log      zerolog.Logger
}

// NewIntake makes the handler's state.
func NewIntake(c IntakeConfig) (*Intake, error) {
	if c.Inbox == nil || c.HSToken == "" {
		return nil, errors.New("intake: inbox and hs_token are required")
	}
	def(&c.MaxBytes, 32<<20)
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Intake{
		inbox: c.Inbox, token: sha256.Sum256([]byte(c.HSToken)), maxBytes: c.MaxBytes,
		bot: c.Bot, now: c.Now, log: c.Log,
	}, nil
}

// Counts gives how many transactions and new events were accepted, and how many
// events were kept aside because they could not be understood.
func (in *Intake) Counts() (transactions, events, bad int64) {
	return in.transactions.Load(), in.events.Load(), in.bad.Load()
}

// Handler serves the routes below /_matrix/app/v1.
func (in *Intake) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /_matrix/app/v1/transactions/{txn}", in.guard(in.transaction))
	mux.HandleFunc("GET /_matrix/app/v1/users/{user}", in.guard(in.user))
	mux.HandleFunc("GET /_matrix/app/v1/rooms/{alias}", in.guard(in.room))
	mux.HandleFunc("POST /_matrix/app/v1/ping", in.guard(in.ping))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, "M_UNRECOGNIZED", "This address is for the homeserver's application service calls only.")
	})
	return mux
}

// guard compares the homeserver's token, in constant time.
func (in *Intake) guard(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		tok, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok {
			tok = r.URL.Query().Get("access_token")
		}
		got := sha256.Sum256([]byte(tok))
		if subtle.ConstantTimeCompare(got[:], in.token[:]) != 1 {
			answer(w, http.StatusForbidden, "M_FORBIDDEN", "The token is not this application service's hs_token.")
			return
		}
		next(w, r)
	}
}

func (in *Intake) transaction(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, in.maxBytes))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			answer(w, http.StatusRequestEntityTooLarge, "M_TOO_LARGE", "The transaction is larger than this application service accepts.")
			return
		}
		answer(w, http.StatusBadRequest, "M_NOT_JSON", "The body could not be read.")
		return
	}
	raws, isTxn := splitTransaction(body)
	if !isTxn || len(raws) > maxEvents {
		answer(w, http.StatusBadRequest, "M_NOT_JSON", "The body is not a transaction.")
		return
	}
	now := in.now()
	events, bad := decodeEvents(raws, now)
	// The homeserver may hang up; what was read is stored all the same.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 25*time.Second)
	defer cancel()
	fresh, err := in.inbox.Accept(ctx, events, bad, now)
	if err != nil {
		in.log.Error().Err(err).Int("events", len(raws)).Msg("Could not store a transaction, the homeserver will send it again")
		answer(w, http.StatusServiceUnavailable, "M_UNKNOWN", "The events could not be stored; send them again.")
		return
	}
	in.transactions.Add(1)
	in.events.Add(int64(fresh))
	in.bad.Add(int64(len(bad)))
	if len(bad) > 0 {
		in.log.Warn().Int("bad", len(bad)).Msg("Kept events aside that could not be understood")
	}
	in.log.Debug().Int("events", len(raws)).Int("fresh", fresh).Msg("Stored a transaction")
	ok(w)
}

// splitTransaction gives the events of a transaction as they came. It reads the
// body twice, once to see that it is JSON, which is half the work of decoding it.
func splitTransaction(body []byte) (events []json.RawMessage, ok bool) {
	// Not gjson's own check: it recurses without a bound, and a body of nothing
	// but brackets would end the process.
	if !json.Valid(body) {
		return nil, false
	}
	txn := gjson.ParseBytes(body)
	if !txn.IsObject() {
		return nil, false
	}
	var list gjson.Result
	txn.ForEach(func(key, value gjson.Result) bool {
		if key.Str == "events" {
			list = value
		}
		return true
	})
	if list.Type == gjson.Null {
		return nil, true // absent: there are none
	}
	if !list.IsArray() {
		return nil, false
	}
	list.ForEach(func(_, value gjson.Result) bool {
		events = append(events, json.RawMessage(value.Raw))
		return true
	})
	return events, true
}

// decodeEvents reads each event alone, so that a bad one does not take the
// others with it.
func decodeEvents(raws []json.RawMessage, now time.Time) (events []queue.Event, bad []json.RawMessage) {
	events = make([]queue.Event, 0, len(raws))
	for _, raw := range raws {
		e, err := decodeEvent(raw)
		if err != nil {
			bad = append(bad, bytes.ToValidUTF8(raw, []byte("\uFFFD")))
			continue
		}
		e.ReceivedAt = now
		events = append(events, e)
	}
	return events, bad
}

var errBadEvent = errors.New("not an event")

// maxIDLen is the specification's bound on identifiers, in bytes.
const maxIDLen = 255

func decodeEvent(raw json.RawMessage) (queue.Event, error) {
	if !utf8.Valid(raw) {
		return queue.Event{}, errBadEvent
	}
	var head struct {
		ID, Room, Sender, Type string
		TS                     float64
	}
	// gjson walks the object once, where encoding/json would read every value;
	// this is the hot path. The JSON is valid, having been read as a whole. Names
	// count to the letter and the last of a name counts, as in [exact]. What is
	// of the wrong type stays empty, which an id may not be; an odd time stamp
	// must not cost the event.
	ev := gjson.ParseBytes(raw)
	if !ev.IsObject() {
		return queue.Event{}, errBadEvent
	}
	ev.ForEach(func(key, value gjson.Result) bool {
		var into *string
		switch key.Str {
		case "event_id":
			into = &head.ID
		case "room_id":
			into = &head.Room
		case "sender":
			into = &head.Sender
		case "type":
			into = &head.Type
		case "origin_server_ts":
			head.TS = 0
			if value.Type == gjson.Number {
				head.TS = value.Num
			}
		}
		if into != nil {
			*into = ""
			if value.Type == gjson.String {
				*into = value.Str
			}
		}
		return true
	})
	for _, s := range []string{head.ID, head.Room, head.Sender, head.Type} {
		if len(s) > maxIDLen || strings.ContainsRune(s, 0) {
			return queue.Event{}, errBadEvent
		}
	}
	if !strings.HasPrefix(head.ID, "$") || !strings.HasPrefix(head.Room, "!") || !strings.HasPrefix(head.Sender, "@") || head.Type == "" {
		return queue.Event{}, errBadEvent
	}
	e := queue.Event{ID: head.ID, Room: head.Room, Sender: head.Sender, Type: head.Type, Body: raw}
	if head.TS > 0 && head.TS < 1<<53 {
		e.SentAt = time.UnixMilli(int64(head.TS))
	}
	return e, nil
}

func (in *Intake) user(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("user") == in.bot {
		ok(w)
		return
	}
	answer(w, http.StatusNotFound, "M_NOT_FOUND", "No such user here.")
}

func (in *Intake) room(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusNotFound, "M_NOT_FOUND", "No such room alias here.")
}

func (in *Intake) ping(w http.ResponseWriter, _ *http.Request) { ok(w) }

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}") // the homeserver asks again if it did not hear
}

func answer(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"errcode": code, "error": text})
}
