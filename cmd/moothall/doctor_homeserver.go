package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"syscall"
)

// answer is what doctor reads of a homeserver's reply.
type answer struct {
	status   int
	location string   // of a redirect
	Versions []string `json:"versions"`
	UserID   string   `json:"user_id"`
	ErrCode  string   `json:"errcode"`
}

// ask does one GET on the homeserver, with the as_token if withToken. A reply
// that is no JSON object has empty fields.
func (d *doctor) ask(ctx context.Context, path string, withToken bool) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.cfg.Homeserver.Address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	if withToken {
		req.Header.Set("Authorization", "Bearer "+string(d.cfg.AppService.ASToken))
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return nil, err
	}
	a := &answer{}
	if json.Unmarshal(body, a) != nil {
		a = &answer{}
	}
	a.status, a.location = resp.StatusCode, resp.Header.Get("Location")
	if !regexp.MustCompile(`^[A-Z0-9_.]{1,64}$`).MatchString(a.ErrCode) {
		a.ErrCode = "no error code" // a stranger's words stay out of the terminal
	}
	return a, nil
}

// homeserver reports whether a homeserver answers at the address.
func (d *doctor) homeserver(ctx context.Context) bool {
	const area = "homeserver"
	address, key := d.cfg.Homeserver.Address, d.cfg.Where("homeserver.address")
	a, err := d.ask(ctx, "/_matrix/client/versions", false)
	switch {
	case err != nil:
		d.bad(area, fmt.Sprintf("%s %s: start it, or change %s", address, unreachable(err), key))
	case a.status >= 300 && a.status < 400:
		d.bad(area, fmt.Sprintf("%s redirects elsewhere (status %d): put the address it redirects to into %s", address, a.status, key))
	case a.status >= 500:
		d.bad(area, fmt.Sprintf("%s answers with status %d, so it is not up, or the proxy before it cannot reach it: look into their logs", address, a.status))
	case a.status != http.StatusOK || len(a.Versions) == 0:
		d.bad(area, fmt.Sprintf("%s answers (status %d), but not as a Matrix client API: change %s", address, a.status, key))
	default:
		d.good(area, address+" answers")
		return true
	}
	return false
}

// unreachable says in a few words why there was no answer.
func unreachable(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "has a host name nobody knows"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "has a certificate that is not trusted here"
	}
	if errors.Is(err, http.ErrSchemeMismatch) {
		return "does not speak TLS, though the address says https"
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refuses the connection (inside a container, localhost is the container itself)"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "does not answer within " + doctorTimeout.String()
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL
	}
	return fmt.Sprintf("cannot be reached (%v)", err)
}

const whoami = "/_matrix/client/v3/account/whoami"

// token checks that the homeserver takes the as_token, and for the bot.
func (d *doctor) token(ctx context.Context) {
	const area = "token"
	bot := d.cfg.BotID()
	a, err := d.ask(ctx, whoami+"?user_id="+url.QueryEscape(bot), true)
	if err != nil {
		d.bad(area, fmt.Sprintf("%s %s when asked who we are: try again, or look into its log", d.cfg.Homeserver.Address, unreachable(err)))
		return
	}
	unknown := a.ErrCode == "M_UNKNOWN_TOKEN" || a.ErrCode == "M_MISSING_TOKEN" || a.status == http.StatusUnauthorized
	forbidden := a.ErrCode == "M_FORBIDDEN" || a.ErrCode == "M_EXCLUSIVE" || a.status == http.StatusForbidden
	switch {
	case a.status == http.StatusOK && a.UserID == bot:
		d.good(area, "accepted for "+bot)
	case a.status == http.StatusOK:
		d.bad(area, d.otherUser(a.UserID))
	case a.status == http.StatusTooManyRequests:
		d.bad(area, fmt.Sprintf("the homeserver limits our rate (%s): rate_limited must be false in %s; load it and restart the homeserver", a.ErrCode, d.registration))
	case unknown || forbidden:
		d.refused(ctx, a.ErrCode, unknown)
	default:
		d.bad(area, fmt.Sprintf("the homeserver answers whoami with status %d (%s): look into its log", a.status, a.ErrCode))
	}
}

// refused tells why the token is not taken for the bot. Asking again without
// naming a user separates an unknown token from one that is another user's:
// homeservers do not agree on the code for the latter.
func (d *doctor) refused(ctx context.Context, code string, unknown bool) {
	const area = "token"
	plain, err := d.ask(ctx, whoami, true)
	switch {
	case err == nil && plain.status == http.StatusOK && plain.UserID != d.cfg.BotID():
		d.bad(area, d.otherUser(plain.UserID))
	case unknown:
		d.bad(area, fmt.Sprintf("the homeserver does not know the token (%s): it has not loaded %s, or an older one; name that file in its configuration and restart it, or correct %s",
			code, d.registration, d.cfg.Where("appservice.as_token")))
	default:
		d.bad(area, fmt.Sprintf("the homeserver knows the token but does not let it act as %s (%s): sender_localpart or namespaces.users of the registration it has loaded do not cover that user; load %s and restart it",
			d.cfg.BotID(), code, d.registration))
	}
}

// otherUser is the finding that the token belongs to got.
func (d *doctor) otherUser(got string) string {
	if !regexp.MustCompile(`^@[!-~]{1,254}$`).MatchString(got) {
		got = "another user" // a stranger's words stay out of the terminal
	}
	return fmt.Sprintf("the homeserver takes the token for %s instead of %s: correct %s or %s, or let it load %s and restart it",
		got, d.cfg.BotID(), d.cfg.Where("homeserver.domain"), d.cfg.Where("appservice.bot.localpart"), d.registration)
}
