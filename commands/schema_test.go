package commands_test

import (
	"strings"
	"testing"

	"moothall/commands"
	"moothall/internal/visible"
)

func TestSchemaHelp(t *testing.T) {
	tests := []struct{ name, id, about, schema, want string }{
		{
			"one argument", "room.topic.set", "Sets the topic of this room.", topicSchema,
			`room.topic.set: Sets the topic of this room.
Arguments:
  topic (text, required): The new topic.
Example: !run room.topic.set topic="some text"`,
		},
		{
			"required ones first, in order", "x.y", "", `{"properties":{
				"note":{"type":["null","string"]},
				"unit":{"type":"string","enum":["day","a week"],"description":"How  long\nit is."},
				"days":{"type":"integer"}, "users":{"type":"array","items":{"type":"string"}}},
				"required":["days","unit"]}`,
			`x.y
Arguments:
  days (whole number, required)
  unit (text, required): How long it is. [one of day, a week]
  note (text, optional)
  users (list, optional)
Example: !run x.y days=1 unit=day`,
		},
		{
			"none", "time.now", "Tells the time.", `{"type":"object","additionalProperties":false}`,
			"time.now: Tells the time.\nIt takes no arguments.\nExample: !run time.now",
		},
		{"unknown", "a", "", ``, "a\nIt does not say which arguments it takes.\nExample: !run a"},
		{
			"hidden characters", "a", "x\u202ey", `{"properties":{"b\u200b":{"description":"\u202e"}}}`,
			"a: x⟨U+202E⟩y\nArguments:\n  b⟨U+200B⟩ (any, optional): ⟨U+202E⟩\nExample: !run a {…}",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := commands.SchemaHelp("!", tt.id, tt.about, []byte(tt.schema)); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// The example of the help is understood by the parser.
func FuzzSchemaHelp(f *testing.F) {
	f.Add(topicSchema)
	f.Add(wideSchema)
	f.Add(`{"properties":{"a":{"enum":["x y","\""]},"b":{"type":"array","items":{"type":"integer"}}},"required":["a","b"]}`)
	f.Add(`{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/a"}}}`)
	f.Fuzz(func(t *testing.T, schema string) {
		help := commands.SchemaHelp("!", "a.b", "about", []byte(schema))
		for _, r := range strings.NewReplacer("\n", "", "⟨", "").Replace(help) {
			if visible.Hidden(r) {
				t.Fatalf("hidden %U in %q", r, help)
			}
		}
		_, example, ok := strings.Cut(help, "\nExample: !run a.b")
		if !ok || strings.Contains(help, "⟨") || strings.Contains(help, "…") {
			return
		}
		if _, err := commands.ToolInput(example, []byte(schema)); err != nil {
			t.Fatalf("example %q of %q: %v", example, schema, err)
		}
	})
}
