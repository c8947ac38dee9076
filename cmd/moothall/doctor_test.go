package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"moothall/cmd/moothall/config"
)

// town is a homeserver as doctor sees one: the status and body of whoami for
// the bot are the test's, everything else is in order.
type town struct {
	status int
	body   string
	owner  string // whose the token is when no user is named; empty: nobody's
}

func (h town) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/_matrix/client/versions":
		_, _ = io.WriteString(w, `{"versions": ["v1.11"]}`)
	case "/_matrix/client/v3/account/whoami":
		user := r.URL.Query().Get("user_id")
		switch {
		case !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer "), user != "" && user != "@moothall:example.org":
			w.WriteHeader(http.StatusBadRequest)
			return
		case user == "" && h.owner != "":
			_, _ = io.WriteString(w, `{"user_id": "`+h.owner+`"}`)
			return
		}
		w.WriteHeader(h.status)
		_, _ = io.WriteString(w, h.body)
	default:
		http.NotFound(w, r)
	}
}

const accepted = `{"user_id": "@moothall:example.org"}`

// installation is what init makes for the homeserver at address.
func installation(t *testing.T, address string) *config.Config {
	t.Helper()
	dir := t.TempDir()
	args := []string{"init", "--homeserver", address, "--domain", "example.org", "--dir", dir}
	if code := run(t.Context(), args, nil, io.Discard, t.Output()); code != exitOK {
		t.Fatalf("init: exit %d", code)
	}
	c, err := config.Load(filepath.Join(dir, "config.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// examine runs the doctor and returns what it printed and whether all was good.
func examine(t *testing.T, c *config.Config, checkDatabase func(context.Context) error) (string, bool) {
	t.Helper()
	var out strings.Builder
	d := &doctor{cfg: c, registration: registrationPath(c), client: newDoctorClient(), out: &out, checkDatabase: checkDatabase}
	err := d.examine(t.Context())
	if err != nil && !errors.Is(err, errReported) {
		t.Fatal(err)
	}
	for _, secret := range []config.Secret{c.AppService.ASToken, c.AppService.HSToken} {
		if strings.Contains(out.String(), string(secret)) {
			t.Error("a token was printed")
		}
	}
	return out.String(), err == nil
}

func TestDoctorHealthy(t *testing.T) {
	hs := httptest.NewServer(town{http.StatusOK, accepted, ""})
	defer hs.Close()
	c := installation(t, hs.URL)
	opened := false
	out, ok := examine(t, c, func(context.Context) error { opened = true; return nil })
	if !ok || !opened || strings.Count(out, "ok    ") != 7 || strings.Contains(out, "FAIL") {
		t.Errorf("ok %v, opened %v:\n%s", ok, opened, out)
	}
	var stdout, stderr strings.Builder
	if code := run(t.Context(), []string{"-c", c.File, "doctor"}, nil, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
		t.Errorf("exit %d\n%s%s", code, stdout.String(), stderr.String())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(c.File), ".moothall-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDoctorToken(t *testing.T) {
	tests := []struct {
		name   string
		status int
		body   string
		owner  string
		says   string
	}{
		{"unknown", 401, `{"errcode": "M_UNKNOWN_TOKEN"}`, "", "does not know the token (M_UNKNOWN_TOKEN): it has not loaded "},
		{"no code", 401, `<html>`, "", "does not know the token (no error code)"},
		{"unknown, as 403", 403, `{"errcode": "M_UNKNOWN_TOKEN"}`, "", "does not know the token"},
		{"forbidden", 403, `{"errcode": "M_FORBIDDEN"}`, "", "does not let it act as @moothall:example.org (M_FORBIDDEN): sender_localpart or namespaces.users"},
		{"exclusive", 400, `{"errcode": "M_EXCLUSIVE"}`, "", "does not let it act as"},
		{"another user", 200, `{"user_id": "@moothall:other.example.org"}`, "", "takes the token for @moothall:other.example.org instead of @moothall:example.org: correct homeserver.domain in line "},
		{"another domain, forbidden", 403, `{"errcode": "M_FORBIDDEN"}`, "@moothall:other.example.org", "takes the token for @moothall:other.example.org instead"},
		{"another domain, unknown", 401, `{"errcode": "M_UNKNOWN_TOKEN"}`, "@moothall:other.example.org", "takes the token for @moothall:other.example.org instead"},
		{"only the sender", 403, `{"errcode": "M_FORBIDDEN"}`, "@moothall:example.org", "does not let it act as @moothall:example.org"},
		{"hostile name", 200, `{"user_id": "@\u001b[31m"}`, "", "takes the token for another user instead"},
		{"rate limit", 429, `{"errcode": "M_LIMIT_EXCEEDED"}`, "", "rate_limited must be false"},
		{"broken", 500, "\x1b[31m", "", "status 500 (no error code)"},
		{"hostile code", 500, `{"errcode": "\u001b[31mfoo"}`, "", "status 500 (no error code)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hs := httptest.NewServer(town{tt.status, tt.body, tt.owner})
			defer hs.Close()
			out, ok := examine(t, installation(t, hs.URL), nil)
			if ok || strings.Count(out, "FAIL") != 1 || !strings.Contains(out, "FAIL  token: ") || !strings.Contains(out, tt.says) {
				t.Errorf("ok %v, want one failure that says %q:\n%s", ok, tt.says, out)
			}
		})
	}
}

func TestDoctorHomeserver(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	tests := []struct{ name, address, says string }{
		{"down", closed.URL, "refuses the connection"},
		{"not Matrix", serve(http.NotFound), "not as a Matrix client API"},
		{"not JSON", serve(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), "not as a Matrix client API"},
		{"redirect", serve(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.org/", http.StatusMovedPermanently)
		}), "redirects elsewhere (status 301)"},
		{"proxy without homeserver", serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) }), "status 502"},
		{"https to http", strings.Replace(serve(http.NotFound), "http:", "https:", 1), "does not speak TLS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out, ok := examine(t, installation(t, tt.address), nil)
			if ok || !strings.Contains(out, "FAIL  homeserver: ") || !strings.Contains(out, tt.says) || !strings.Contains(out, "skip  token: ") {
				t.Errorf("ok %v, want %q:\n%s", ok, tt.says, out)
			}
		})
	}
}

func TestDoctorFiles(t *testing.T) {
	hs := httptest.NewServer(town{http.StatusOK, accepted, ""})
	defer hs.Close()
	tests := []struct {
		name  string
		spoil func(t *testing.T, c *config.Config) error
		says  string
	}{
		{"key readable by others", func(_ *testing.T, c *config.Config) error { return os.Chmod(c.Identity.KeyFile, 0o644) }, "has mode 0644, so others can use the key: chmod 600 it"},
		{"key gone", func(_ *testing.T, c *config.Config) error { return os.Remove(c.Identity.SecretsKeyFile) }, "secrets.pem does not exist: `moothall -c "},
		{"key garbled", func(_ *testing.T, c *config.Config) error {
			return os.WriteFile(c.Identity.KeyFile, []byte("x"), 0o600)
		}, "cannot be used (holds no PEM block PRIVATE KEY)"},
		{"registration gone", func(_ *testing.T, c *config.Config) error { return os.Remove(registrationPath(c)) }, "registration.yaml: no such file"},
		{"registration of other tokens", func(_ *testing.T, c *config.Config) error {
			other := *c
			other.AppService.HSToken = "another"
			other.AppService.Bot.Localpart = "other"
			return os.WriteFile(registrationPath(c), config.Registration(&other), 0o600)
		}, "differ in hs_token, sender_localpart, namespaces.users: replace"},
		{"database folder gone", func(_ *testing.T, c *config.Config) error {
			c.Database.Path = filepath.Join(filepath.Dir(c.File), "gone", "m.db")
			return nil
		}, "does not exist: make it, or change database.path in "},
		{"database is a folder", func(_ *testing.T, c *config.Config) error { return os.Mkdir(c.Database.Path, 0o700) }, "is a folder, not a file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := installation(t, hs.URL)
			if err := tt.spoil(t, c); err != nil {
				t.Fatal(err)
			}
			out, ok := examine(t, c, nil)
			if ok || strings.Count(out, "FAIL") != 1 || !strings.Contains(out, tt.says) {
				t.Errorf("ok %v, want one failure that says %q:\n%s", ok, tt.says, out)
			}
		})
	}
}

func TestDoctorDatabase(t *testing.T) {
	hs := httptest.NewServer(town{http.StatusOK, accepted, ""})
	defer hs.Close()
	c := installation(t, hs.URL)
	out, ok := examine(t, c, func(context.Context) error { return errors.New("m.db is newer than this program: use the newer one") })
	if ok || !strings.Contains(out, "FAIL  database: m.db is newer than this program") {
		t.Errorf("ok %v:\n%s", ok, out)
	}
	c.Database.Type = config.Postgres
	if out, ok := examine(t, c, nil); !ok || !strings.Contains(out, "skip  database: PostgreSQL was not tried") {
		t.Errorf("ok %v:\n%s", ok, out)
	}
}
