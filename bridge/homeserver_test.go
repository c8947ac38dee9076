package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	domain  = "example.org"
	botID   = "@moothall:" + domain
	hsToken = "the-homeservers-token"
)

// user gives the full Matrix ID of a first name; full ones stay.
func user(name string) string {
	if strings.HasPrefix(name, "@") {
		return name
	}
	return "@" + name + ":" + domain
}

// fakeHS is a homeserver in memory: rooms with state and events, the rules of
// who may do what, transaction ids that it remembers for half an hour, and a
// queue of events for the application service. It is the only fake of these
// tests.
type fakeHS struct {
	t  *testing.T
	mu sync.Mutex

	rooms   map[string]*fakeRoom
	txns    map[string]fakeTxn
	queue   []json.RawMessage // not yet delivered
	n       int
	batches int
	down    bool // delivers nothing, answers nothing
	deaf    bool // answers nothing
	// broken fails single requests: the name of the method of Homeserver.
	broken map[string]error
	wake   chan struct{}
	sent   []fakeEvent  // what the bot did, in order
	ahead  atomic.Int64 // see [fakeHS.now]
}

type fakeTxn struct {
	event string
	at    time.Time
}

type fakeRoom struct {
	id      string
	state   map[stateKey]json.RawMessage
	creator string
	events  []fakeEvent
}

type stateKey struct{ typ, key string }

type fakeEvent struct {
	ID, Room, Sender, Type string
	StateKey               *string
	Redacts                string
	Content                map[string]any
	At                     time.Time
}

func (e fakeEvent) raw() json.RawMessage {
	m := map[string]any{
		"event_id": e.ID, "room_id": e.Room, "sender": e.Sender, "type": e.Type,
		"origin_server_ts": e.At.UnixMilli(), "content": e.Content,
	}
	if e.StateKey != nil {
		m["state_key"] = *e.StateKey
	}
	if e.Redacts != "" {
		m["redacts"] = e.Redacts
	}
	raw, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

func newFakeHS(t *testing.T) *fakeHS {
	t.Helper()
	return &fakeHS{
		t: t, rooms: map[string]*fakeRoom{}, txns: map[string]fakeTxn{}, broken: map[string]error{},
		wake: make(chan struct{}, 1),
	}
}

var errDown = errors.New("homeserver not reached: connection refused")

// now is everybody's clock. It can be put forward without the hours being lived
// through, poll by poll.
func (h *fakeHS) now() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }

// ask is the beginning of every request of the bot.
func (h *fakeHS) ask(method, room string) (*fakeRoom, error) {
	if h.down || h.deaf {
		return nil, errDown
	}
	if err := h.broken[method]; err != nil {
		return nil, err
	}
	r := h.rooms[room]
	if r == nil {
		return nil, &APIError{Status: http.StatusForbidden, Code: "M_FORBIDDEN"}
	}
	return r, nil
}

func forbidden() error { return &APIError{Status: http.StatusForbidden, Code: "M_FORBIDDEN"} }

func (r *fakeRoom) membership(u string) string {
	var c struct{ Membership string }
	_ = json.Unmarshal(r.state[stateKey{typeMember, u}], &c)
	return c.Membership
}

// standing is computed by rules of the fake's own, not by the code under test.
func (r *fakeRoom) power(u string) int64 {
	var c struct {
		RoomVersion string   `json:"room_version"`
		Additional  []string `json:"additional_creators"`
	}
	_ = json.Unmarshal(r.state[stateKey{typeCreate, ""}], &c)
	if c.RoomVersion == "12" && (u == r.creator || slices.Contains(c.Additional, u)) {
		return 1 << 53
	}
	raw, ok := r.state[stateKey{typePowerLevels, ""}]
	if !ok {
		if u == r.creator {
			return 100
		}
		return 0
	}
	var p struct{ Users map[string]int64 }
	_ = json.Unmarshal(raw, &p)
	return p.Users[u]
}

// put adds an event to a room and to what the application service is told.
func (h *fakeHS) put(r *fakeRoom, e fakeEvent) string {
	h.n++
	if e.ID == "" {
		e.ID = fmt.Sprintf("$e%d", h.n)
	}
	e.Room = r.id
	if e.At.IsZero() {
		e.At = h.now()
	}
	if e.StateKey != nil {
		raw, err := json.Marshal(e.Content)
		if err != nil {
			h.t.Error(err)
		}
		r.state[stateKey{e.Type, *e.StateKey}] = raw
	}
	r.events = append(r.events, e)
	if e.Sender == botID {
		h.sent = append(h.sent, e)
	}
	h.queue = append(h.queue, e.raw())
	select {
	case h.wake <- struct{}{}:
	default:
	}
	return e.ID
}

// Put adds what a person does.
func (h *fakeHS) Put(room string, e fakeEvent) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	did := len(h.sent)
	id := h.put(h.rooms[room], e)
	h.sent = h.sent[:did] // even if it claims to be the bot's
	return id
}

func (h *fakeHS) with(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

// deliver hands over what is queued as one transaction, as a homeserver does:
// again and again until it is answered 200. gone gives the handler, or nil while
// the application service is down.
func (h *fakeHS) deliver(ctx context.Context, handler func() http.Handler) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.wake:
		}
		for {
			h.mu.Lock()
			batch, down := slices.Clone(h.queue), h.down
			h.batches++
			txn := fmt.Sprint("t", h.batches)
			h.mu.Unlock()
			if len(batch) == 0 {
				break
			}
			if to := handler(); to != nil && !down && putTxn(to, txn, batch) == http.StatusOK {
				h.with(func() { h.queue = h.queue[len(batch):] })
				continue
			}
			t := time.NewTimer(500 * time.Millisecond)
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
		}
	}
}

func putTxn(to http.Handler, txn string, events []json.RawMessage) int {
	body, err := json.Marshal(map[string]any{"events": events})
	if err != nil {
		panic(err)
	}
	return putBody(to, txn, hsToken, string(body)).Code
}

func putBody(to http.Handler, txn, token, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPut, "/_matrix/app/v1/transactions/"+txn, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	to.ServeHTTP(w, r)
	return w
}

// once gives the event of a transaction id that is still remembered.
func (h *fakeHS) once(txn string, f func() string) string {
	if t, ok := h.txns[txn]; ok && h.now().Sub(t.at) < 30*time.Minute {
		return t.event
	}
	id := f()
	h.txns[txn] = fakeTxn{id, h.now()}
	return id
}

func (h *fakeHS) Send(_ context.Context, room, evType, txnID string, content json.RawMessage) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Send", room)
	if err != nil {
		return "", err
	}
	if r.membership(botID) != "join" {
		return "", forbidden()
	}
	var c map[string]any
	if err := json.Unmarshal(content, &c); err != nil {
		return "", &APIError{Status: http.StatusBadRequest, Code: "M_NOT_JSON"}
	}
	return h.once(txnID, func() string {
		return h.put(r, fakeEvent{Sender: botID, Type: evType, Content: c})
	}), nil
}

func (h *fakeHS) Redact(_ context.Context, room, eventID, txnID string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Redact", room)
	if err != nil {
		return "", err
	}
	if r.membership(botID) != "join" {
		return "", forbidden()
	}
	return h.once(txnID, func() string {
		return h.put(r, fakeEvent{Sender: botID, Type: typeRedaction, Redacts: eventID, Content: map[string]any{"redacts": eventID}})
	}), nil
}

func (h *fakeHS) State(_ context.Context, room, evType, key string) (json.RawMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("State", room)
	if err != nil {
		return nil, err
	}
	if r.membership(botID) != "join" {
		return nil, forbidden()
	}
	raw, ok := r.state[stateKey{evType, key}]
	if !ok {
		return nil, ErrNoState
	}
	return raw, nil
}

func (h *fakeHS) SetState(_ context.Context, room, evType, key string, content json.RawMessage) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("SetState", room)
	if err != nil {
		return err
	}
	var c map[string]any
	if json.Unmarshal(content, &c) != nil || r.membership(botID) != "join" || r.power(botID) < 50 {
		return forbidden()
	}
	h.put(r, fakeEvent{Sender: botID, Type: evType, StateKey: &key, Content: c})
	return nil
}

func (h *fakeHS) CreateSender(_ context.Context, room string) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("CreateSender", room)
	if err != nil {
		return "", err
	}
	return r.creator, nil
}

func (h *fakeHS) JoinedMembers(_ context.Context, room string) (map[string]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("JoinedMembers", room)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for k := range r.state {
		if k.typ == typeMember && r.membership(k.key) == "join" {
			out[k.key] = k.key
		}
	}
	return out, nil
}

func (h *fakeHS) Event(_ context.Context, room, eventID string) (json.RawMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Event", room)
	if err != nil {
		return nil, err
	}
	for _, e := range r.events {
		if e.ID == eventID {
			return e.raw(), nil
		}
	}
	return nil, &APIError{Status: http.StatusNotFound, Code: "M_NOT_FOUND"}
}

func (h *fakeHS) Recent(_ context.Context, room string, limit int) ([]json.RawMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Recent", room)
	if err != nil {
		return nil, err
	}
	var out []json.RawMessage
	for _, e := range slices.Backward(r.events) {
		if len(out) == limit {
			break
		}
		out = append(out, e.raw())
	}
	return out, nil
}

// member puts a membership event of who, sent by by.
func (h *fakeHS) member(r *fakeRoom, by, who, membership string) {
	h.put(r, fakeEvent{Sender: by, Type: typeMember, StateKey: &who, Content: map[string]any{"membership": membership}})
}

func (h *fakeHS) Join(_ context.Context, room string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Join", room)
	if err != nil {
		return err
	}
	if r.membership(botID) != "invite" {
		return forbidden()
	}
	h.member(r, botID, botID, "join")
	return nil
}

func (h *fakeHS) Leave(_ context.Context, room string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Leave", room)
	if err != nil {
		return err
	}
	h.member(r, botID, botID, "leave")
	return nil
}

func (h *fakeHS) Invite(_ context.Context, room, who string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Invite", room)
	if err != nil {
		return err
	}
	if r.membership(botID) != "join" {
		return forbidden()
	}
	h.member(r, botID, who, "invite")
	return nil
}

func (h *fakeHS) Kick(_ context.Context, room, who, _ string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, err := h.ask("Kick", room)
	if err != nil {
		return err
	}
	if r.membership(botID) != "join" || r.power(botID) <= r.power(who) {
		return forbidden()
	}
	h.member(r, botID, who, "leave")
	return nil
}

// roomSpec is how a test describes a room.
type roomSpec struct {
	id         string
	version    string // default 10
	creator    string // default alice
	additional []string
	members    map[string]int64 // joined, with their power
	noLevels   bool
	name       string
	encrypted  bool
}

// Add makes a room without telling anybody of its past.
func (h *fakeHS) Add(s roomSpec) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.version == "" {
		s.version = "10"
	}
	if s.creator == "" {
		s.creator = user("alice")
	}
	r := &fakeRoom{id: s.id, creator: s.creator, state: map[stateKey]json.RawMessage{}}
	set := func(typ, key string, v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			h.t.Fatal(err)
		}
		r.state[stateKey{typ, key}] = raw
	}
	create := map[string]any{"room_version": s.version}
	if s.version != "11" && s.version != "12" {
		create["creator"] = s.creator
	}
	if len(s.additional) > 0 {
		create["additional_creators"] = s.additional
	}
	set(typeCreate, "", create)
	levels := map[string]int64{}
	for u, p := range s.members {
		set(typeMember, u, map[string]string{"membership": "join"})
		creator := s.version == "12" && (u == s.creator || slices.Contains(s.additional, u))
		if p != 0 && !creator {
			levels[u] = p
		}
	}
	if !s.noLevels {
		set(typePowerLevels, "", map[string]any{"users": levels})
	}
	if s.name != "" {
		set(typeRoomName, "", map[string]string{"name": s.name})
	}
	if s.encrypted {
		set(typeEncryption, "", map[string]string{"algorithm": "m.megolm.v1.aes-sha2"})
	}
	h.rooms[s.id] = r
}

// SetPower changes one user's power, with the event that tells of it.
func (h *fakeHS) SetPower(room, who string, power int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[room]
	var p struct {
		Users map[string]any `json:"users"`
	}
	_ = json.Unmarshal(r.state[stateKey{typePowerLevels, ""}], &p)
	if p.Users == nil {
		p.Users = map[string]any{}
	}
	p.Users[who] = power
	key := ""
	h.put(r, fakeEvent{Sender: r.creator, Type: typePowerLevels, StateKey: &key, Content: map[string]any{"users": p.Users}})
}
