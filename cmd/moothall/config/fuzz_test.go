package config

import (
	"errors"
	"strings"
	"testing"
)

// Whatever the file holds there is a configuration or a list of problems,
// never a panic, and no problem repeats a token.
func FuzzParse(f *testing.F) {
	f.Add([]byte(""), []byte(""))
	f.Add(Example(), []byte(""))
	f.Add([]byte("appservice:\n  as_token: "), []byte("\n  hs_token: 5\n"))
	f.Add([]byte("appservice:\n  as_token:"), []byte("\n  url: x\n"))
	f.Add([]byte("appservice: {as_token:"), []byte(": x, hs_token}"))
	f.Add([]byte("appservice: {as_token: *"), []byte("}"))
	f.Add([]byte("appservice: {as_token: !!int "), []byte("}"))
	f.Add([]byte("a: &"), []byte(" [*a]\nb: *c"))
	f.Add([]byte("%TAG ! "), []byte(":\n---\n!x y"))
	f.Add([]byte("logging: {level: \"\\"), []byte("\"}"))
	f.Add([]byte("- - - ? : "), []byte("\n---\n..."))
	f.Fuzz(func(t *testing.T, before, after []byte) {
		data := append(append(append([]byte{}, before...), asToken...), after...)
		c, err := Parse("config.yaml", data, nil)
		e, ok := errors.AsType[*Error](err)
		if (c == nil) != (err != nil) || err != nil && (!ok || len(e.Problems) == 0) {
			t.Fatalf("config %v, error %v", c, err)
		}
		if err != nil && strings.Contains(err.Error(), asToken) {
			t.Fatalf("a token is in the error: %v", err)
		}
		if r, err := ParseRegistration("registration.yaml", data); err == nil {
			_ = r.Diff(&Config{})
		} else if strings.Contains(err.Error(), asToken) {
			t.Fatalf("a token is in the error: %v", err)
		}
	})
}

// The same for a variable of the environment.
func FuzzEnviron(f *testing.F) {
	for _, k := range Keys() {
		f.Add(k.Env, k.Default)
	}
	f.Add("MOOTHALL_APPSERVICE__AS_TOKEN_FILE", "/dev/null")
	f.Fuzz(func(t *testing.T, env, value string) {
		if strings.HasSuffix(env, fileSuffixEnv) {
			return // would read files
		}
		_, err := Parse("config.yaml", least(nil), []string{env + "=" + value + asToken})
		if err != nil && strings.Contains(err.Error(), asToken) {
			t.Fatalf("a token is in the error: %v", err)
		}
	})
}

// Whatever text is rendered comes back the same.
func FuzzRender(f *testing.F) {
	for _, s := range []string{"Moothall", "yes", "1e3", "a: b", "'", "\"", "🏛", "0x1F", "~", "12:30:45", "2026-01-02", "a #b", "\u2028"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if s == "" || (&key{check: checkLine}).verify(s) != "" {
			return
		}
		c, err := Parse("config.yaml", least(map[string]string{"appservice.bot.displayname": s}), nil)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if c.AppService.Bot.DisplayName != s {
			t.Fatalf("%q came back as %q", s, c.AppService.Bot.DisplayName)
		}
	})
}
