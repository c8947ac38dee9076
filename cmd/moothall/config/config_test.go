package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

const (
	asToken = "AsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAsAs42"
	hsToken = "HsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHsHs42"
)

// least is a configuration of the mandatory keys, with more keys by name.
func least(more map[string]string) []byte {
	values := map[string]string{
		"homeserver.address": "https://matrix.example.org", "homeserver.domain": "example.org",
		"appservice.url": "http://127.0.0.1:29333", "appservice.as_token": asToken, "appservice.hs_token": hsToken,
	}
	maps.Copy(values, more)
	return Render(values)
}

func TestDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, least(nil), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	want := &Config{
		File:       path,
		Homeserver: Homeserver{Address: "https://matrix.example.org", Domain: "example.org"},
		AppService: AppService{
			ID: "moothall", URL: "http://127.0.0.1:29333", Listen: "127.0.0.1:29333",
			Bot: Bot{Localpart: "moothall", DisplayName: "Moothall"}, ASToken: asToken, HSToken: hsToken,
		},
		Database: Database{Type: SQLite, Path: filepath.Join(dir, "moothall.db")},
		Admin:    Admin{Listen: "127.0.0.1:29334"},
		Commands: Commands{Prefix: "!"},
		Approvals: Approvals{
			MinPower: 50, Expiry: Expiry{After: 24 * time.Hour},
			Approve: []string{"✅", "👍", "approve", "yes"}, Reject: []string{"❌", "👎", "reject", "no"},
		},
		Limits:   Limits{TransactionBytes: 33554432, EventAge: time.Hour, ToolTimeout: 30 * time.Second},
		Identity: Identity{KeyFile: filepath.Join(dir, "identity.pem"), SecretsKeyFile: filepath.Join(dir, "secrets.pem")},
		Logging:  Logging{Level: "info", Format: JSON},
	}
	c.where = nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("defaults\n%#v\nwant\n%#v", c, want)
	}
}

// The example file, with tokens, is a right configuration equal to one of the
// mandatory keys alone: what it shows as default is the default.
func TestExampleShowsTheDefaults(t *testing.T) {
	filled := strings.NewReplacer(`as_token: ""`, "as_token: "+asToken, `hs_token: ""`, "hs_token: "+hsToken).Replace(string(Example()))
	fromExample, err := Parse("config.yaml", []byte(filled), nil)
	if err != nil {
		t.Fatal(err)
	}
	short, err := Parse("config.yaml", fmt.Appendf(nil, `
homeserver: {address: "https://matrix.example.org", domain: example.org}
appservice: {url: "http://127.0.0.1:29333", as_token: %s, hs_token: %s}`, asToken, hsToken), nil)
	if err != nil {
		t.Fatal(err)
	}
	fromExample.where, short.where = nil, nil
	if !reflect.DeepEqual(fromExample, short) {
		t.Errorf("example\n%#v\nshort\n%#v", fromExample, short)
	}
	// As it stands it lacks the tokens and nothing else.
	_, err = Parse("config.yaml", Example(), nil)
	e, ok := errors.AsType[*Error](err)
	if !ok || len(e.Problems) != 2 || e.Problems[0].Key != "appservice.as_token" || e.Problems[0].Line == 0 {
		t.Errorf("the bare example: %v", err)
	}
}

// Each key can come from the environment alone, without a file.
func TestEveryKeyFromTheEnvironment(t *testing.T) {
	dir := t.TempDir()
	values := map[string]string{
		"homeserver.address": "http://hs:8008/", "homeserver.domain": "[::1]:8448",
		"appservice.id": "town", "appservice.url": "https://bot.example.org/as/", "appservice.listen": "[::]:1",
		"appservice.as_token": asToken, "appservice.hs_token": hsToken,
		"appservice.bot.localpart": "town", "appservice.bot.displayname": "Town Hall", "appservice.bot.avatar": "mxc://example.org/abc",
		"database.type": "postgres", "database.path": "/var/m.db", "database.uri": "postgres://u:p@db/m",
		"admin.listen": "127.0.0.1:0", "commands.prefix": "?",
		"approvals.min_power": "0", "approvals.expiry": "never", "approvals.approve": "👌, ok", "approvals.reject": "🚫",
		"limits.transaction_bytes": "65536", "limits.event_age": "10m", "limits.tool_timeout": "1s",
		"identity.key_file": "/keys/a", "identity.secrets_key_file": "keys/b",
		"logging.level": "debug", "logging.format": "pretty", "logging.file": "m.log",
	}
	environ := []string{"PATH=/bin", "MOOTHALL_TEST_X=1", "MOOTHALL_REQUIRE=all", "MOOTHALL_CONFIG=x"}
	for _, k := range Keys() {
		v, ok := values[k.Name]
		if !ok || v == k.Default {
			t.Errorf("%s: the test gives no value of its own", k.Name)
		}
		environ = append(environ, k.Env+"="+v)
	}
	c, err := Load(filepath.Join(dir, "absent.yaml"), environ)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		File:       filepath.Join(dir, "absent.yaml"),
		Homeserver: Homeserver{Address: "http://hs:8008", Domain: "[::1]:8448"},
		AppService: AppService{
			ID: "town", URL: "https://bot.example.org/as", Listen: "[::]:1", ASToken: asToken, HSToken: hsToken,
			Bot: Bot{Localpart: "town", DisplayName: "Town Hall", Avatar: "mxc://example.org/abc"},
		},
		Database:  Database{Type: Postgres, Path: "/var/m.db", URI: "postgres://u:p@db/m"},
		Admin:     Admin{Listen: "127.0.0.1:0"},
		Commands:  Commands{Prefix: "?"},
		Approvals: Approvals{Expiry: Expiry{Never: true}, Approve: []string{"👌", "ok"}, Reject: []string{"🚫"}},
		Limits:    Limits{TransactionBytes: 65536, EventAge: 10 * time.Minute, ToolTimeout: time.Second},
		Identity:  Identity{KeyFile: "/keys/a", SecretsKeyFile: filepath.Join(dir, "keys/b")},
		Logging:   Logging{Level: "debug", Format: Pretty, File: filepath.Join(dir, "m.log")},
	}
	c.where = nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%#v\nwant\n%#v", c, want)
	}
}

func TestRefused(t *testing.T) {
	tests := []struct {
		key   string
		wrong []string
	}{
		{"homeserver.address", []string{"matrix.example.org", "ftp://example.org", "https://", "https://u:p@example.org", "https://example.org?x", "https://example.org:0", "https://example.org:", "https://example.org/#a"}},
		{"homeserver.domain", []string{"Example.org", "https://example.org", "example.org:", "example.org:0", "example.org:65536", "example.org:+1", "@bob:example.org", "exa mple.org", "-example.org", "a..b", "[::1", "[1.2.3.4]", "::1", "[fe80::1%eth0]", "example.org:1:2", "é.example.org"}},
		{"appservice.id", []string{"a b", strings.Repeat("a", 65)}},
		{"appservice.listen", []string{"29333", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:65536"}},
		{"appservice.as_token", []string{"short", strings.Repeat("a", 513), strings.Repeat("a b", 20), hsToken}},
		{"appservice.bot.localpart", []string{"Moothall", "@moothall", "moothall:example.org", "moot hall", strings.Repeat("a", 250)}},
		{"appservice.bot.avatar", []string{"https://example.org/a.png", "mxc://example.org"}},
		{"database.type", []string{"sqlite3", "SQLite"}},
		{"database.uri", []string{"mysql://x", "postgres://u:%zz@x", "postgres://db/only-for-postgres"}},
		{"admin.listen", []string{"127.0.0.1:29333"}},
		{"commands.prefix", []string{"a b", strings.Repeat("!", 17)}},
		{"approvals.min_power", []string{"-1", "9007199254740992", "1e2"}},
		{"approvals.expiry", []string{"0s", "-1h", "Never", "24", "forever"}},
		{"approvals.reject", []string{"✔️,YES", "👍🏽", ","}},
		{"limits.transaction_bytes", []string{"0", "-5", "65535", "1073741825"}},
		{"limits.event_age", []string{"0", "1 hour", "-1h"}},
		{"logging.level", []string{"warning", "INFO"}},
		{"logging.format", []string{"text"}},
	}
	for _, tt := range tests {
		for _, wrong := range tt.wrong {
			_, err := Parse("config.yaml", least(nil), []string{envName(tt.key) + "=" + wrong})
			e, ok := errors.AsType[*Error](err)
			if !ok || len(e.Problems) != 1 {
				t.Errorf("%s = %q: want one problem, got %v", tt.key, wrong, err)
			} else if len(wrong) > 10 && strings.Contains(e.Error(), wrong) {
				t.Errorf("%s: the value is repeated: %v", tt.key, err)
			}
		}
	}
}

func TestYAMLMistakes(t *testing.T) {
	head := "homeserver: {address: 'https://matrix.example.org', domain: example.org}\n" +
		"appservice: {url: 'http://127.0.0.1:29333', as_token: " + asToken + ", hs_token: " + hsToken + "}\n"
	tests := []struct {
		name, more string
		want       []string
	}{
		{"nothing wrong", "", nil},
		{"an empty section", "logging:\n", nil},
		{"an empty value is the default", "limits: {event_age: }\n", nil},
		{"an alias", "limits: {event_age: &a 2h, tool_timeout: *a}\n", nil},
		{"another section", "bridge: {}\n", []string{"c.yaml:3: bridge: is no key of Moothall"}},
		{"a dotted key", "limits.event_age: 1h\n", []string{"c.yaml:3: limits.event_age: is no key of Moothall; write sections as levels, not with dots"}},
		{"a section twice", "admin: {}\nadmin: {}\n", []string{"c.yaml:4: admin: is given twice, first in line 3"}},
		{"merge keys", "limits: {<<: {event_age: 1h}}\n", []string{"c.yaml:3: limits.(unreadable name): is no key of Moothall"}},
		{"a key that is a list", "limits: {? [a] : b}\n", []string{"c.yaml:3: limits: holds something that is no key"}},
		{"no mapping", "limits: [a]\n", []string{"c.yaml:3: limits: must hold keys, one a line, as in `moothall config example`"}},
		{"an unquoted prefix", "commands: {prefix: 1}\n", []string{"c.yaml:3: commands.prefix: must be one text (in quotes if it looks like something else)"}},
		{"a number in quotes", "approvals: {min_power: '50'}\n", []string{"c.yaml:3: approvals.min_power: must be a whole number"}},
		{"an empty list", "approvals: {approve: []}\n", []string{"c.yaml:3: approvals.approve: needs at least one entry"}},
		{"a list of numbers", "approvals: {approve: [1]}\n", []string{"c.yaml:3: approvals.approve: must be a list of texts (in quotes if need be)"}},
		{"two documents", "---\n{}\n", []string{"c.yaml: holds more than one YAML document"}},
		{"a tab", "limits:\n\tevent_age: 1h\n", []string{"c.yaml:4: is not valid YAML near this line: found character that cannot start any token"}},
		{"an unknown anchor", "limits: *" + asToken + "\n", []string{"c.yaml: is not valid YAML here"}},
		{"a token that lost its colon", "x: {" + asToken + ": 1}\n? " + hsToken + "\n: 2\n", []string{"c.yaml:3: x: is no key of Moothall", "c.yaml:4: (unreadable name): is no key of Moothall"}},
		{"postgres without URI", "database: {type: postgres}\n", []string{"c.yaml:3: database.uri: is required when database.type is postgres"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("c.yaml", []byte(head+tt.more), nil)
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if tt.want == nil && err != nil || tt.want != nil && !strings.HasPrefix(strings.Join(got, "\n"), strings.Join(tt.want, "\n")) {
				t.Errorf("got\n%v\nwant\n%v", err, strings.Join(tt.want, "\n"))
			}
			if err != nil && (strings.Contains(err.Error(), asToken) || strings.Contains(err.Error(), hsToken)) {
				t.Error("a token is in the error")
			}
		})
	}
}

func TestUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, nil); err == nil || !strings.Contains(err.Error(), "is a folder, not a file") {
		t.Error(err)
	}
	large := filepath.Join(dir, "large.yaml")
	if err := os.WriteFile(large, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large, nil); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Error(err)
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	c, err := Parse("config.yaml", least(nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	y, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	all := fmt.Sprintf("%v %+v %#v %s %q %x", c, *c, c, c.AppService.ASToken, c.AppService.ASToken, c.AppService.ASToken) + string(data) + string(y)
	if strings.Contains(all, asToken) || strings.Contains(all, hsToken) || strings.Contains(all, fmt.Sprintf("%x", asToken)) {
		t.Error("a token was printed")
	}
}

func TestKeys(t *testing.T) {
	var registration []string
	for _, k := range Keys() {
		if k.Doc == "" || k.Type == "" || k.Required && k.Default != "" {
			t.Errorf("%+v", k)
		}
		if (k.EnvFile != "") != (k.Type == "secret") {
			t.Errorf("%s: file variable %q", k.Name, k.EnvFile)
		}
		if k.Registration {
			registration = append(registration, k.Name)
		}
		if !slices.ContainsFunc(sections(), func(s section) bool { return s.name == sectionOf(k.Name) }) {
			t.Errorf("%s is in no section", k.Name)
		}
	}
	if !slices.Equal(registration, RegistrationKeys()) || len(registration) != 6 {
		t.Errorf("registration keys: %v", registration)
	}
}

// An operator is told where to change a key.
func TestWhere(t *testing.T) {
	yaml := fmt.Sprintf("homeserver: {address: 'https://matrix.example.org', domain: example.org}\nappservice:\n  url: http://127.0.0.1:1\n  as_token: %s\n", asToken)
	c, err := Parse("/etc/moothall.yaml", []byte(yaml), []string{"MOOTHALL_APPSERVICE__HS_TOKEN=" + hsToken})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"appservice.as_token": "appservice.as_token in line 4 of /etc/moothall.yaml",
		"appservice.hs_token": "MOOTHALL_APPSERVICE__HS_TOKEN in the environment",
		"database.path":       "database.path in /etc/moothall.yaml",
	} {
		if got := c.Where(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
