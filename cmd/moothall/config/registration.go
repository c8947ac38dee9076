package config

import (
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// Registration is the file the homeserver reads, made from c. It claims one
// user, the bot, exclusively, and nothing else. It holds both tokens.
func Registration(c *Config) []byte {
	var b strings.Builder
	b.WriteString("# The appservice registration of Moothall, for the homeserver. It holds both tokens: keep it private.\n")
	b.WriteString("# A new one (moothall registration) and a restart of the homeserver are needed when one of these changes:\n")
	fmt.Fprintf(&b, "# %s\n", strings.Join(RegistrationKeys(), ", "))
	line := func(key, value string) { fmt.Fprintf(&b, "%s: %s\n", key, value) }
	line("id", single(c.AppService.ID))
	line("url", single(c.AppService.URL))
	line("as_token", single(string(c.AppService.ASToken)))
	line("hs_token", single(string(c.AppService.HSToken)))
	line("sender_localpart", single(c.AppService.Bot.Localpart))
	line("rate_limited", "false")
	line("receive_ephemeral", "false")
	fmt.Fprintf(&b, "namespaces:\n  users:\n    - exclusive: true\n      regex: %s\n  aliases: []\n  rooms: []\n", single(botRegex(c)))
	return []byte(b.String())
}

// ExampleRegistration is [Registration] of the example configuration, with
// words in the place of the tokens.
func ExampleRegistration() []byte {
	c := &Config{}
	for _, k := range declared() {
		if value := k.example + k.def; k.registration && value != "" {
			_ = k.put(c, []string{value}, "")
		}
	}
	c.AppService.ASToken = "as_token-of-64-characters-made-by-moothall-init"
	c.AppService.HSToken = "hs_token-of-64-characters-made-by-moothall-init"
	return Registration(c)
}

// RegistrationKeys are the keys that need a new registration when they change.
func RegistrationKeys() []string {
	var out []string
	for _, k := range declared() {
		if k.registration {
			out = append(out, k.name)
		}
	}
	return out
}

// botRegex matches the bot's Matrix ID and no other.
func botRegex(c *Config) string {
	return "^@" + regexp.QuoteMeta(c.AppService.Bot.Localpart) + ":" + regexp.QuoteMeta(c.Homeserver.Domain) + "$"
}

// single is s in single quotes, in which YAML escapes nothing but the quote.
func single(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Registered is a registration file as read, perhaps edited by hand.
type Registered struct {
	fields map[string]string
}

// ReadRegistration reads and parses the file at path. Any error is an [*Error].
func ReadRegistration(path string) (*Registered, error) {
	data, err := readLimited(path)
	if err != nil {
		why := cause(err)
		return nil, &Error{Problems: []Problem{{File: path, Text: why}}}
	}
	return ParseRegistration(path, data)
}

// ParseRegistration parses the bytes of a registration; path is for messages
// only. Keys it does not know are allowed, homeservers have their own.
func ParseRegistration(path string, data []byte) (*Registered, error) {
	root, problem := document(data)
	if problem == nil && (root == nil || target(root).Kind != yaml.MappingNode) {
		problem = &Problem{Text: "is no appservice registration"}
	}
	if problem != nil {
		problem.File = path
		return nil, &Error{Problems: []Problem{*problem}}
	}
	r := &Registered{fields: map[string]string{"receive_ephemeral": "false"}}
	each(root, func(key string, v *yaml.Node) {
		if v.Kind == yaml.ScalarNode {
			r.fields[key] = v.Value
		}
		if key == "namespaces" {
			each(v, r.namespace)
		}
	})
	return r, nil
}

// namespace reduces one list of namespaces to a text that can be compared.
func (r *Registered) namespace(kind string, list *yaml.Node) {
	var parts []string
	for _, item := range list.Content {
		entry := map[string]string{}
		each(target(item), func(key string, v *yaml.Node) { entry[key] = v.Value })
		parts = append(parts, entry["exclusive"]+" "+entry["regex"])
	}
	r.fields["namespaces."+kind] = strings.Join(parts, "\n")
}

// each calls f with the entries of a mapping; anything else has none.
func each(n *yaml.Node, f func(key string, v *yaml.Node)) {
	if n = target(n); n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		f(n.Content[i].Value, target(n.Content[i+1]))
	}
}

// Diff lists the keys of the registration that are not as c would make them,
// in the file's order; empty means both agree. It names keys, never values.
func (r *Registered) Diff(c *Config) []string {
	want := []struct{ key, value string }{
		{"id", c.AppService.ID},
		{"url", c.AppService.URL},
		{"as_token", string(c.AppService.ASToken)},
		{"hs_token", string(c.AppService.HSToken)},
		{"sender_localpart", c.AppService.Bot.Localpart},
		{"rate_limited", "false"},
		{"receive_ephemeral", "false"},
		{"namespaces.users", "true " + botRegex(c)},
		{"namespaces.aliases", ""},
		{"namespaces.rooms", ""},
	}
	var out []string
	for _, w := range want {
		got := r.fields[w.key]
		if w.key == "url" {
			got = strings.TrimRight(got, "/")
		}
		if got != w.value {
			out = append(out, w.key)
		}
	}
	return out
}
