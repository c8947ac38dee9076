package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// Example is the commented example configuration. It is complete but for the
// two tokens, which `moothall init` makes.
func Example() []byte {
	values := map[string]string{}
	for _, k := range declared() {
		if k.example != "" {
			values[k.name] = k.example
		}
	}
	return Render(values)
}

// Render is a commented configuration with the given values, by key name and
// in the form the environment would give them; other keys get their default.
// Names that are no key are ignored; values are not checked.
func Render(values map[string]string) []byte {
	var b strings.Builder
	b.WriteString(`# Configuration of Moothall. "moothall config check" lists everything that is wrong with it.
#
# Every key can also come from the environment, which wins: homeserver.address
# is MOOTHALL_HOMESERVER__ADDRESS (two underscores between levels, lists with
# commas; an empty variable is as good as none). The secrets as_token, hs_token
# and database.uri can be kept in a file: as_token_file: /run/secrets/as_token
# here, or the variable MOOTHALL_APPSERVICE__AS_TOKEN_FILE.
#
# Relative paths start at the folder of this file. Durations: 30s, 15m, 24h.
# Keys marked [registration] are in the registration too: after changing one,
# make a new one with "moothall registration" and restart the homeserver.
`)
	keys := declared()
	for _, s := range sections() {
		indent := strings.Repeat("  ", strings.Count(s.name, "."))
		fmt.Fprintf(&b, "\n%s# %s\n%s%s:\n", indent, s.doc, indent, leaf("."+s.name))
		for i := range keys {
			k := &keys[i]
			if sectionOf(k.name) != s.name {
				continue
			}
			value, given := values[k.name]
			if !given {
				value = k.def
			}
			renderKey(&b, indent+"  ", k, value)
		}
	}
	return []byte(b.String())
}

func renderKey(b *strings.Builder, indent string, k *key, value string) {
	doc := k.doc
	if k.registration {
		doc += " [registration]"
	}
	for line := range strings.SplitSeq(doc, "\n") {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
	shown := scalar(value)
	switch k.kind() {
	case "list":
		items := splitList(value)
		for i := range items {
			items[i] = quote(items[i])
		}
		shown = "[" + strings.Join(items, ", ") + "]"
	case "number":
		shown = value
	}
	fmt.Fprintf(b, "%s%s: %s\n", indent, leaf(k.name), shown)
}

// scalar is s as YAML: plain if every parser would read it as the same text,
// else quoted.
func scalar(s string) string {
	if !regexp.MustCompile(`^[A-Za-z0-9/][A-Za-z0-9._/:-]*$`).MatchString(s) {
		return quote(s)
	}
	var n yaml.Node
	if err := yaml.Unmarshal([]byte(s), &n); err != nil || len(n.Content) != 1 {
		return quote(s)
	}
	if c := n.Content[0]; c.Kind != yaml.ScalarNode || c.ShortTag() != "!!str" || c.Value != s {
		return quote(s)
	}
	return s
}

// quote is s in double quotes; JSON's are a subset of YAML's.
func quote(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}
