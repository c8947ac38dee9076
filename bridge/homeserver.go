package bridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"
)

// Homeserver is what the bridge needs of the client-server API, acting as the
// bot. Every method is one request, may block on the network until ctx ends and
// does not retry. Failures the homeserver spoke are a [*APIError].
type Homeserver interface {
	// Send sends a message-like event under a transaction id.
	Send(ctx context.Context, room, evType, txnID string, content json.RawMessage) (eventID string, err error)
	Redact(ctx context.Context, room, eventID, txnID string) (redactionID string, err error)
	// State gives the content of one state event, [ErrNoState] if there is none.
	State(ctx context.Context, room, evType, key string) (json.RawMessage, error)
	SetState(ctx context.Context, room, evType, key string, content json.RawMessage) error
	// CreateSender gives who sent the room's create event.
	CreateSender(ctx context.Context, room string) (string, error)
	// JoinedMembers gives the joined Matrix IDs with their display names.
	JoinedMembers(ctx context.Context, room string) (map[string]string, error)
	Event(ctx context.Context, room, eventID string) (json.RawMessage, error)
	// Recent gives the newest events of a room, newest first.
	Recent(ctx context.Context, room string, limit int) ([]json.RawMessage, error)
	Join(ctx context.Context, room string) error
	Leave(ctx context.Context, room string) error
	Invite(ctx context.Context, room, user string) error
	Kick(ctx context.Context, room, user, reason string) error
}

// APIError is a refusal the homeserver put in words.
type APIError struct {
	Status     int
	Code       string        // errcode
	RetryAfter time.Duration // of a 429; zero if it did not say
}

// Error names status and code, never the body: it may quote what was sent.
func (e *APIError) Error() string { return fmt.Sprintf("homeserver answered %d %s", e.Status, e.Code) }

// ErrNoState means that the room has no such state event, or no such member.
var ErrNoState = errors.New("no such state event")

// temporary reports whether the same request may succeed later: the network, a
// 5xx, a 429, or a token that the homeserver does not know at the moment.
func temporary(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, ErrNoState) {
		return false
	}
	if e, ok := errors.AsType[*APIError](err); ok {
		return e.Status >= 500 || e.Status == http.StatusTooManyRequests || e.Status == http.StatusUnauthorized || e.Status == http.StatusRequestTimeout
	}
	return true
}

// Client is the real [Homeserver], over mautrix.
type Client struct {
	c *mautrix.Client
}

// NewClient makes a client that acts as bot with the appservice token. It never
// retries by itself: mautrix ignores retry_after_ms in the body, and the queues
// retry better.
func NewClient(address, bot, asToken string, timeout time.Duration) (*Client, error) {
	c, err := mautrix.NewClient(address, id.UserID(bot), asToken)
	if err != nil {
		return nil, fmt.Errorf("homeserver address: %w", err)
	}
	c.SetAppServiceUserID = true
	c.DefaultHTTPRetries = 0
	c.Client = &http.Client{Timeout: timeout, Transport: &http.Transport{
		MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: timeout,
	}}
	return &Client{c}, nil
}

// request does one call and types its failure.
func (h *Client) request(ctx context.Context, method, url string, body, out any) error {
	// mautrix logs each failure through the logger in ctx; whoever called logs it
	// once, with what it means.
	ctx = zerolog.Nop().WithContext(ctx)
	_, err := h.c.MakeFullRequest(ctx, mautrix.FullRequest{
		Method: method, URL: url, RequestJSON: body, ResponseJSON: out, SensitiveContent: true, MaxAttempts: 1,
	})
	return apiError(err)
}

func apiError(err error) error {
	if err == nil {
		return nil
	}
	he, ok := errors.AsType[mautrix.HTTPError](err)
	if !ok || he.Response == nil {
		// The request's URL names rooms and events; the cause alone is enough.
		return fmt.Errorf("homeserver not reached: %w", errors.Unwrap(err))
	}
	out := &APIError{Status: he.Response.StatusCode}
	if he.RespError != nil {
		out.Code = he.RespError.ErrCode
		if ms, ok := he.RespError.ExtraData["retry_after_ms"].(float64); ok && ms > 0 && ms < 3_600_000 {
			out.RetryAfter = time.Duration(ms) * time.Millisecond
		}
	}
	if s := he.Response.Header.Get("Retry-After"); s != "" && out.RetryAfter == 0 {
		if d, err := time.ParseDuration(s + "s"); err == nil && d > 0 && d < time.Hour {
			out.RetryAfter = d
		}
	}
	return out
}

// Send implements [Homeserver].
func (h *Client) Send(ctx context.Context, room, evType, txnID string, content json.RawMessage) (string, error) {
	var r mautrix.RespSendEvent
	u := h.c.BuildClientURL("v3", "rooms", room, "send", evType, txnID)
	err := h.request(ctx, http.MethodPut, u, content, &r)
	return r.EventID.String(), err
}

// Redact implements [Homeserver].
func (h *Client) Redact(ctx context.Context, room, eventID, txnID string) (string, error) {
	var r mautrix.RespSendEvent
	u := h.c.BuildClientURL("v3", "rooms", room, "redact", eventID, txnID)
	err := h.request(ctx, http.MethodPut, u, struct{}{}, &r)
	return r.EventID.String(), err
}

// State implements [Homeserver].
func (h *Client) State(ctx context.Context, room, evType, key string) (json.RawMessage, error) {
	var out json.RawMessage
	u := h.c.BuildClientURL("v3", "rooms", room, "state", evType, key)
	err := h.request(ctx, http.MethodGet, u, nil, &out)
	if e, ok := errors.AsType[*APIError](err); ok && e.Status == http.StatusNotFound {
		return nil, ErrNoState
	}
	return out, err
}

// SetState implements [Homeserver].
func (h *Client) SetState(ctx context.Context, room, evType, key string, content json.RawMessage) error {
	u := h.c.BuildClientURL("v3", "rooms", room, "state", evType, key)
	return h.request(ctx, http.MethodPut, u, content, nil)
}

// CreateSender implements [Homeserver]. The state event alone has no sender, so
// the whole state is asked for; only rooms of version 11 and later need it.
func (h *Client) CreateSender(ctx context.Context, room string) (string, error) {
	var all []struct {
		Type   string `json:"type"`
		Sender string `json:"sender"`
	}
	if err := h.request(ctx, http.MethodGet, h.c.BuildClientURL("v3", "rooms", room, "state"), nil, &all); err != nil {
		return "", err
	}
	for _, e := range all {
		if e.Type == typeCreate {
			return e.Sender, nil
		}
	}
	return "", ErrNoState
}

// JoinedMembers implements [Homeserver].
func (h *Client) JoinedMembers(ctx context.Context, room string) (map[string]string, error) {
	var r mautrix.RespJoinedMembers
	u := h.c.BuildClientURL("v3", "rooms", room, "joined_members")
	if err := h.request(ctx, http.MethodGet, u, nil, &r); err != nil {
		return nil, err
	}
	out := make(map[string]string, len(r.Joined))
	for user, m := range r.Joined {
		out[user.String()] = m.DisplayName
	}
	return out, nil
}

// Event implements [Homeserver].
func (h *Client) Event(ctx context.Context, room, eventID string) (json.RawMessage, error) {
	var out json.RawMessage
	u := h.c.BuildClientURL("v3", "rooms", room, "event", eventID)
	err := h.request(ctx, http.MethodGet, u, nil, &out)
	return out, err
}

// Recent implements [Homeserver].
func (h *Client) Recent(ctx context.Context, room string, limit int) ([]json.RawMessage, error) {
	var r struct {
		Chunk []json.RawMessage `json:"chunk"`
	}
	u := h.c.BuildURLWithQuery(mautrix.ClientURLPath{"v3", "rooms", room, "messages"}, map[string]string{
		"dir": "b", "limit": fmt.Sprint(limit),
	})
	err := h.request(ctx, http.MethodGet, u, nil, &r)
	return r.Chunk, err
}

// Join implements [Homeserver].
func (h *Client) Join(ctx context.Context, room string) error {
	return h.request(ctx, http.MethodPost, h.c.BuildClientURL("v3", "rooms", room, "join"), struct{}{}, nil)
}

// Leave implements [Homeserver].
func (h *Client) Leave(ctx context.Context, room string) error {
	return h.request(ctx, http.MethodPost, h.c.BuildClientURL("v3", "rooms", room, "leave"), struct{}{}, nil)
}

// Invite implements [Homeserver].
func (h *Client) Invite(ctx context.Context, room, user string) error {
	u := h.c.BuildClientURL("v3", "rooms", room, "invite")
	return h.request(ctx, http.MethodPost, u, map[string]string{"user_id": user}, nil)
}

// Kick implements [Homeserver].
func (h *Client) Kick(ctx context.Context, room, user, reason string) error {
	u := h.c.BuildClientURL("v3", "rooms", room, "kick")
	return h.request(ctx, http.MethodPost, u, map[string]string{"user_id": user, "reason": reason}, nil)
}

// Whoami asks who the homeserver takes the bot for. A refused token is an
// [*APIError] of status 401 or 403.
func (h *Client) Whoami(ctx context.Context) (string, error) {
	var r mautrix.RespWhoami
	err := h.request(ctx, http.MethodGet, h.c.BuildClientURL("v3", "account", "whoami"), nil, &r)
	return r.UserID.String(), err
}

// Register makes the bot's account if it does not exist.
func (h *Client) Register(ctx context.Context, localpart string) error {
	u := h.c.BuildClientURL("v3", "register")
	err := h.request(ctx, http.MethodPost, u, map[string]any{
		"type": "m.login.application_service", "username": localpart, "inhibit_login": true,
	}, nil)
	if e, ok := errors.AsType[*APIError](err); ok && e.Code == "M_USER_IN_USE" {
		return nil
	}
	return err
}

// SetProfile sets display name and avatar where they differ from what is there.
// An empty value leaves that part alone.
func (h *Client) SetProfile(ctx context.Context, bot, name, avatar string) error {
	var have struct {
		Name   string `json:"displayname"`
		Avatar string `json:"avatar_url"`
	}
	if err := h.request(ctx, http.MethodGet, h.c.BuildClientURL("v3", "profile", bot), nil, &have); err != nil {
		if e, ok := errors.AsType[*APIError](err); !ok || e.Status != http.StatusNotFound {
			return err
		}
	}
	if name != "" && name != have.Name {
		u := h.c.BuildClientURL("v3", "profile", bot, "displayname")
		if err := h.request(ctx, http.MethodPut, u, map[string]string{"displayname": name}, nil); err != nil {
			return err
		}
	}
	if avatar != "" && avatar != have.Avatar {
		u := h.c.BuildClientURL("v3", "profile", bot, "avatar_url")
		return h.request(ctx, http.MethodPut, u, map[string]string{"avatar_url": avatar}, nil)
	}
	return nil
}

// Event types that the bridge sends or reads.
var (
	typeMessage     = event.EventMessage.Type
	typeReaction    = event.EventReaction.Type
	typeRedaction   = event.EventRedaction.Type
	typeEncrypted   = event.EventEncrypted.Type
	typeMember      = event.StateMember.Type
	typePowerLevels = event.StatePowerLevels.Type
	typeCreate      = event.StateCreate.Type
	typeEncryption  = event.StateEncryption.Type
	typeRoomName    = event.StateRoomName.Type
	typeTombstone   = event.StateTombstone.Type
	typeTopic       = event.StateTopic.Type
)
