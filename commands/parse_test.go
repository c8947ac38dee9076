package commands_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"moothall/commands"
	"moothall/internal/visible"
)

func TestParse(t *testing.T) {
	tests := []struct {
		in, prefix string
		name, rest string
		ok         bool
	}{
		{"!ping", "!", "ping", "", true},
		{"  !Run  room.topic.set topic=\"x\" \n", "!", "run", `room.topic.set topic="x"`, true},
		{"!run\u00a0a\u00a0", "!", "run", "a", true},
		{"!run\na\nb", "!", "run", "a\nb", true},
		{"!a-b_2 x", "", "a-b_2", "x", true},
		{"?ping", "?", "ping", "", true},
		{"moot ping", "moot ", "ping", "", true},
		{"!", "!", "", "", false},
		{"! foo", "!", "", "", false},
		{"!!x", "!", "", "", false},
		{"!123", "!", "", "", false},
		{"!ping?", "!", "", "", false},
		{"!pingé", "!", "", "", false},
		{"!\u212aick", "!", "", "", false},
		{"hello !ping", "!", "", "", false},
		{"", "!", "", "", false},
		{"!" + strings.Repeat("a", 65), "!", "", "", false},
		{"!ping\xff", "!", "", "", false},
	}
	for _, tt := range tests {
		line, ok := commands.Parse(tt.in, tt.prefix)
		if ok != tt.ok || line.Name != tt.name || line.Rest != tt.rest {
			t.Errorf("%q: got %+v, %v", tt.in, line, ok)
		}
	}
}

func TestArgs(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""},
		{"  \u00a0 ", ""},
		{"a b\u00a0c\nd", "a|b|c|d"},
		{`topic="New topic" x=1`, "topic:New topic|x:1"},
		{`topic=“New topic”`, "topic:New topic"},
		{`topic=”New topic”`, "topic:New topic"},
		{`topic=„New topic“ b=„x”`, "topic:New topic|b:x"},
		{`topic=«New topic» b=»x y«`, "topic:New topic|b:x y"},
		{`topic='New topic' b=‘x y’`, "topic:New topic|b:x y"},
		{`topic=‘don’t panic’`, "topic:don’t panic"},
		{`'don't panic'`, "don't panic"},
		{`don't panic`, "don't|panic"},
		{`"a \"b\" \\ \n\t\x"`, "a \"b\" \\ \n\t\\x"},
		{`'a\b'`, `a\b`},
		{`a\b`, `a\b`},
		{`x=`, "x:"},
		{`x="" y=''`, "x:|y:"},
		{`a.b=c`, "a.b:c"},
		{`https://example.org/?a=b`, "https://example.org/?a=b"},
		{`=x`, "=x"},
		{`1a=b`, "1a=b"},
		{`f={"a": "} ]", "b": [1, 2]} g=1`, `f:{"a": "} ]", "b": [1, 2]}|g:1`},
		{`t=[draft] new`, "t:[draft]|new"},
		{`t=[WIP new`, "t:[WIP|new"},
		{`t="“x”"`, "t:“x”"},
	}
	for _, tt := range tests {
		args, err := commands.Args(tt.in)
		var got []string
		for _, a := range args {
			if a.Key != "" {
				got = append(got, a.Key+":"+a.Value)
			} else {
				got = append(got, a.Value)
			}
		}
		if err != nil || strings.Join(got, "|") != tt.want {
			t.Errorf("%s: got %q, %v", tt.in, got, err)
		}
	}
}

func TestArgsRefuses(t *testing.T) {
	tests := []struct {
		in     string
		column int
		want   string
	}{
		{`topic="New`, 7, "the quote that starts at column 7 is never closed"},
		{`é “New`, 3, "the quote that starts at column 3 is never closed"},
		{`'tis`, 1, "the quote that starts at column 1 is never closed"},
		{`"a\"`, 1, "the quote that starts at column 1 is never closed"},
		{`"a"b`, 4, "a space is missing after the closing quote, before column 4"},
		{strings.Repeat("a ", 300), 513, "that is more than 256 arguments"},
		{strings.Repeat("a", 1<<20), 0, "that is too long: a command takes at most 65536 bytes"},
	}
	for _, tt := range tests {
		_, err := commands.Args(tt.in)
		var bad *commands.InputError
		if !errors.As(err, &bad) || bad.Say != tt.want || bad.Column != tt.column {
			t.Errorf("%.40s: got %v", tt.in, err)
		}
	}
}

const (
	topicSchema = `{"type":"object","properties":{"topic":{"type":"string","description":"The new topic."}},"required":["topic"],"additionalProperties":false}`
	wideSchema  = `{"type":"object","properties":{
		"text":{"type":"string"},"days":{"type":"integer"},"ratio":{"type":["null","number"]},"loud":{"type":"boolean"},
		"users":{"type":["null","array"],"items":{"type":"string"}},"counts":{"type":"array","items":{"type":"integer"}},
		"filter":{"type":"object"},"unit":{"type":"string","enum":["day","week"]},"any":{},"maybe":{"anyOf":[{"type":"integer"},{"type":"null"}]},
		"ref":{"$ref":"#/$defs/N"},"a.b":{"type":"string"}},"$defs":{"N":{"type":"integer"}},"required":["text","days"]}`
)

func TestToolInput(t *testing.T) {
	tests := []struct{ schema, in, want string }{
		{topicSchema, `topic="New topic"`, `{"topic":"New topic"}`},
		{topicSchema, `topic=“New topic”`, `{"topic":"New topic"}`},
		{topicSchema, ` {"topic": "New <topic>"} `, `{"topic": "New <topic>"}`},
		{topicSchema, `"New topic"`, `{"topic":"New topic"}`},
		{topicSchema, `Lunch`, `{"topic":"Lunch"}`},
		{topicSchema, `topic=123`, `{"topic":"123"}`},
		{topicSchema, `topic=<b>&é`, `{"topic":"<b>&é"}`},
		{topicSchema, "", `{}`},
		{topicSchema, "topic=", `{"topic":""}`},
		{wideSchema, `days=3 text=true`, `{"days":3,"text":"true"}`},
		{wideSchema, `days="-07"`, `{"days":-7}`},
		{wideSchema, `ratio=0.50 loud=YES`, `{"ratio":0.50,"loud":true}`},
		{wideSchema, `ratio=null loud=no`, `{"ratio":null,"loud":false}`},
		{wideSchema, `users=a,b`, `{"users":["a","b"]}`},
		{wideSchema, `users="a, b" users=c`, `{"users":["a","b","c"]}`},
		{wideSchema, `users=["a,b", "c"]`, `{"users":["a,b", "c"]}`},
		{wideSchema, `users=`, `{"users":[]}`},
		{wideSchema, `counts=1,2`, `{"counts":[1,2]}`},
		{wideSchema, `filter={"a": [1]} unit=week`, `{"filter":{"a": [1]},"unit":"week"}`},
		{wideSchema, `any=[1] maybe=null`, `{"any":[1],"maybe":null}`},
		{wideSchema, `any=1 maybe=2 ref=3`, `{"any":"1","maybe":2,"ref":3}`},
		{wideSchema, `a.b=x`, `{"a.b":"x"}`},
		{``, `a=1 b="c d"`, `{"a":"1","b":"c d"}`},
		{`not JSON`, `a=1`, `{"a":"1"}`},
		{`{"properties":{"a":{"type":"integer"}},"additionalProperties":true}`, `a=1 b=2`, `{"a":1,"b":"2"}`},
		{`{"properties":{"a":true}}`, `a=1`, `{"a":"1"}`},
	}
	for _, tt := range tests {
		got, err := commands.ToolInput(tt.in, []byte(tt.schema))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s, %v", tt.in, got, err)
		}
	}
}

func TestToolInputRefuses(t *testing.T) {
	tests := []struct{ schema, in, want string }{
		{topicSchema, `topc="x"`, `no argument "topc"; did you mean topic?`},
		{topicSchema, `colour=x`, `no argument "colour"; there is topic`},
		{topicSchema, `New topic`, `"New" has no name; write topic="…", with quotes around a value that has spaces`},
		{topicSchema, `topic=a topic=b`, `topic is given twice`},
		{topicSchema, `topic.en=a`, `"topic.en" is a name within a name; write the arguments as JSON: {…}`},
		{topicSchema, `topic="x`, `the quote that starts at column 7 is never closed`},
		{topicSchema, `{"topic": "x"`, `the JSON ends too early: a closing bracket or quote is missing`},
		{topicSchema, `{"topic" "x"}`, `that is not valid JSON: something is wrong at character 10`},
		{topicSchema, "{\n\"topic\": x}", `that is not valid JSON: something is wrong at line 2, character 10`},
		{topicSchema, `{“topic”: “x”}`, `that is not valid JSON: something is wrong at character 2 (JSON needs plain quotes, ")`},
		{topicSchema, `{"a":1} {"b":2}`, `that is not valid JSON: something is wrong at character 9`},
		{topicSchema, `{"a":[{"b":1,"\u0062":2}]}`, `"b" is given twice in the JSON`},
		{topicSchema, "a\u202eb=x y", "\"a⟨U+202E⟩b=x\" has no name; write topic=\"…\", with quotes around a value that has spaces"},
		{topicSchema, "topic=\xff", "the arguments are not valid UTF-8 text"},
		{wideSchema, `days=soon`, `days must be a whole number`},
		{wideSchema, `days=3.0`, `days must be a whole number`},
		{wideSchema, `days=9007199254740993`, `days is too large a number`},
		{wideSchema, `days=99999999999999999999`, `days is too large a number`},
		{wideSchema, `ratio=half`, `ratio must be a number`},
		{wideSchema, `ratio=1e999`, `ratio is too large a number`},
		{wideSchema, `loud=maybe`, `loud must be yes or no`},
		{wideSchema, `counts=1,x`, `counts must be a whole number`},
		{wideSchema, `filter=x`, `filter must be a JSON object: {…}`},
		{wideSchema, `filter={"a":1,"a":2}`, `filter must be a JSON object, but "a" is given twice in the JSON`},
		{wideSchema, `unit=weak`, `unit must be one of day, week; did you mean week?`},
		{wideSchema, `unit=year`, `unit must be one of day, week`},
		{`{"type":"object","additionalProperties":false}`, `x`, `it takes no arguments, but got "x"`},
		{`{"type":"object","additionalProperties":false}`, `x=1`, `no argument "x"; it takes none`},
		{``, strings.Repeat("x", 1<<20), `that is too long: arguments take at most 65536 bytes`},
	}
	for _, tt := range tests {
		got, err := commands.ToolInput(tt.in, []byte(tt.schema))
		var bad *commands.InputError
		if !errors.As(err, &bad) || bad.Say != tt.want {
			t.Errorf("%.60s:\ngot  %s, %v\nwant %s", tt.in, got, err, tt.want)
		}
	}
}

func TestWorstInputIsQuick(t *testing.T) {
	for _, piece := range []string{
		"a ", "a=[ ", `a=[" `, `a="x" `, "“", "'", "' ", `\`, "{", `{"a":`, `["a",`, "users=a,", "users=a ", "days=1", "\u00a0", "a.", "\xff",
	} {
		for _, size := range []int{commands.MaxInput, 1 << 20} {
			in := strings.Repeat(piece, size/len(piece))
			took := best(func() {
				_, _ = commands.Args(in)
				_, _ = commands.ToolInput(in, []byte(wideSchema))
				_, _ = commands.ToolInput("{\"a\":"+in, []byte(wideSchema))
				_, _ = commands.ToolInput("text=a", []byte(in))
				commands.SchemaHelp("!", in, in, []byte(in))
				commands.Parse("!"+in, "!")
				commands.Nearest(in, []string{in, "topic"})
			})
			if took > quick {
				t.Errorf("%q to %d bytes: %v", piece, size, took)
			}
		}
	}
}

// quick is how long all of this may take; generous, for the race detector.
const quick = 5 * time.Second

// best is the shortest of up to three runs of f, so that a busy machine fails
// nothing.
func best(f func()) time.Duration {
	least := time.Hour
	for range 3 {
		start := time.Now()
		f()
		if least = min(least, time.Since(start)); least < quick {
			break
		}
	}
	return least
}

func FuzzLine(f *testing.F) {
	for _, s := range []string{"!ping", "! x", "!run\u00a0a", "!a\xff"} {
		f.Add(s, "!")
	}
	f.Fuzz(func(t *testing.T, text, prefix string) {
		line, ok := commands.Parse(text, prefix)
		if ok != (line.Name != "") || strings.ToLower(line.Name) != line.Name || strings.TrimSpace(line.Rest) != line.Rest {
			t.Fatalf("%+v, %v", line, ok)
		}
	})
}

func FuzzArgs(f *testing.F) {
	for _, s := range []string{`a="b c" d`, `x=“y”`, `'don't'`, `f={"a":[1]}`, `a=[`, `"\`, "‚a’"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		args, err := commands.Args(s)
		sayable(t, err)
		for _, a := range args {
			if a.Column < 1 || a.Column > len(s) {
				t.Fatalf("column %d of %q", a.Column, s)
			}
		}
	})
}

func FuzzToolInput(f *testing.F) {
	for _, s := range []string{`text="b c" days=3`, `{"a":{"b":1}}`, `users=a,b filter={"x":"y"}`, `counts=1,2 loud=yes`, `{"a":1,"a":2}`, `topc=1`} {
		f.Add(s, wideSchema)
		f.Add(s, topicSchema)
	}
	f.Fuzz(func(t *testing.T, s, schema string) {
		got, err := commands.ToolInput(s, []byte(schema))
		sayable(t, err)
		var object map[string]json.RawMessage
		if err == nil && json.Unmarshal(got, &object) != nil {
			t.Fatalf("%q gives %s", s, got)
		}
	})
}

// sayable checks that an error is fit for a room.
func sayable(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var bad *commands.InputError
	if !errors.As(err, &bad) || !utf8.ValidString(bad.Say) || len(bad.Say) > 2500 {
		t.Fatalf("not for a room: %q", err)
	}
	for _, r := range strings.ReplaceAll(bad.Say, "⟨", "") {
		if visible.Hidden(r) {
			t.Fatalf("hidden %U in %q", r, bad.Say)
		}
	}
}
