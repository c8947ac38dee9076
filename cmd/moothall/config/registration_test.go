package config

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func registered(t *testing.T, more map[string]string) (*Config, []byte) {
	t.Helper()
	c, err := Parse("config.yaml", least(more), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, Registration(c)
}

// The namespace is the bot alone, on this server alone.
func TestNamespace(t *testing.T) {
	_, data := registered(t, map[string]string{"appservice.bot.localpart": "moot.hall", "homeserver.domain": "example.org:8448"})
	var r struct {
		SenderLocalpart string `yaml:"sender_localpart"`
		RateLimited     *bool  `yaml:"rate_limited"`
		Namespaces      struct {
			Users []struct {
				Exclusive bool
				Regex     string
			}
			Aliases, Rooms []any
		}
	}
	if err := yaml.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Namespaces.Users) != 1 || !r.Namespaces.Users[0].Exclusive || len(r.Namespaces.Aliases)+len(r.Namespaces.Rooms) != 0 {
		t.Fatalf("%+v", r)
	}
	if r.SenderLocalpart != "moot.hall" || r.RateLimited == nil || *r.RateLimited {
		t.Errorf("%+v", r)
	}
	re := regexp.MustCompile(r.Namespaces.Users[0].Regex)
	for id, want := range map[string]bool{
		"@moot.hall:example.org:8448":     true,
		"@mootxhall:example.org:8448":     false,
		"@moot.hall:exampleXorg:8448":     false,
		"@moot.hall:example.org":          false,
		"@moot.hall2:example.org:8448":    false,
		"x@moot.hall:example.org:8448":    false,
		"@moot.hall:example.org:8448.com": false,
		"@MOOT.HALL:example.org:8448":     false,
	} {
		if re.MatchString(id) != want {
			t.Errorf("%s: want match %v", id, want)
		}
	}
}

func TestDiff(t *testing.T) {
	c, data := registered(t, nil)
	tests := []struct {
		name     string
		old, new string // what is edited by hand
		want     []string
	}{
		{"as made", "", "", nil},
		{"a slash more", "29333'", "29333/'", nil},
		{"quotes gone", "'moothall'", "moothall", nil},
		{"a key of the homeserver's", "rate_limited", "io.element.msc4190: true\nrate_limited", nil},
		{"other token", hsToken, asToken, []string{"hs_token"}},
		{"rate limited", "rate_limited: false", "rate_limited: true", []string{"rate_limited"}},
		{"rate limit not said", "rate_limited: false\n", "", []string{"rate_limited"}},
		{"no URL", "'http://127.0.0.1:29333'", "null", []string{"url"}},
		{"not exclusive", "exclusive: true", "exclusive: false", []string{"namespaces.users"}},
		{"everybody", `^@moothall:example\.org$`, `.*`, []string{"namespaces.users"}},
		{"one more", "  aliases", "    - {exclusive: false, regex: x}\n  aliases", []string{"namespaces.users"}},
		{"rooms", "rooms: []", "rooms: [{exclusive: true, regex: x}]", []string{"namespaces.rooms"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := ParseRegistration("registration.yaml", []byte(strings.Replace(string(data), tt.old, tt.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Diff(c); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestExampleRegistration(t *testing.T) {
	r, err := ParseRegistration("registration.yaml", ExampleRegistration())
	if err != nil {
		t.Fatal(err)
	}
	c, _ := registered(t, nil)
	if got := r.Diff(c); !slices.Equal(got, []string{"as_token", "hs_token"}) {
		t.Errorf("the examples differ in %v, want the tokens alone", got)
	}
}
