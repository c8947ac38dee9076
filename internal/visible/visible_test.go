package visible_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"moothall/internal/visible"
)

func TestText(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"plain ASCII stays", "Hello, <world> & \"you\"! ~", "Hello, <world> & \"you\"! ~"},
		{"letters of any script stay", "Grüße 你好 שלום नमस्ते", "Grüße 你好 שלום नमस्ते"},
		{"emoji stays", "✅👍", "✅👍"},
		{"right-to-left override", "a\u202eb", "a⟨U+202E⟩b"},
		{"isolates", "\u2066x\u2069", "⟨U+2066⟩x⟨U+2069⟩"},
		{"zero width", "a\u200bb\u200dc\u200cd\u2060", "a⟨U+200B⟩b⟨U+200D⟩c⟨U+200C⟩d⟨U+2060⟩"},
		{"variation selectors", "✅\ufe0f\U000e0100", "✅⟨U+FE0F⟩⟨U+E0100⟩"},
		{"tag characters", "\U000e0041", "⟨U+E0041⟩"},
		{"soft hyphen, byte order mark", "\u00ad\ufeff", "⟨U+00AD⟩⟨U+FEFF⟩"},
		{"invisible operators", "\u2061\u2064", "⟨U+2061⟩⟨U+2064⟩"},
		{"Hangul fillers", "\u115f\u1160\u3164\uffa0", "⟨U+115F⟩⟨U+1160⟩⟨U+3164⟩⟨U+FFA0⟩"},
		{"separators", "\u2028\u2029", "⟨U+2028⟩⟨U+2029⟩"},
		{"other spaces", "\u00a0\u2003\u3000\u202f", "⟨U+00A0⟩⟨U+2003⟩⟨U+3000⟩⟨U+202F⟩"},
		{"empty braille", "\u2800", "⟨U+2800⟩"},
		{"private use and unassigned", "\ue000\U0010fffd\u0378", "⟨U+E000⟩⟨U+10FFFD⟩⟨U+0378⟩"},
		{"controls", "\x00\x1b[1m\x7f\u0085\r\n\t", "⟨U+0000⟩⟨U+001B⟩[1m⟨U+007F⟩⟨U+0085⟩⟨U+000D⟩⟨U+000A⟩⟨U+0009⟩"},
		{"not UTF-8", "a\xff\xc3", "a⟨0xFF⟩⟨0xC3⟩"},
		{"a typed name is told apart", "⟨U+202E⟩", "⟨U+27E8⟩U+202E⟩"},
		{"a mark on nothing", "\u0301a\u0301", "⟨U+0301⟩a\u0301"},
		{"a tower of marks", "a" + strings.Repeat("\u0301", 9), "a" + strings.Repeat("\u0301", 8) + "⟨U+0301⟩"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := visible.Text(tt.in, 1000); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestLinesKeepsLineFeedsAndTabs(t *testing.T) {
	if got, want := visible.Lines("a\r\n\tb\u2028c", 100), "a⟨U+000D⟩\n\tb⟨U+2028⟩c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLimit(t *testing.T) {
	tests := []struct {
		name, in string
		limit    int
		want     string
	}{
		{"fits exactly", "abc", 3, "abc"},
		{"one too many", "abcd", 3, "abc…(1 more bytes)"},
		{"never within a character", "aé", 2, "a…(2 more bytes)"},
		{"never within a written-out one", "a\u202eb", 5, "a…(4 more bytes)"},
		{"nothing fits", "abc", 0, "…(3 more bytes)"},
		{"less than nothing", "abc", -1, "…(3 more bytes)"},
		{"empty", "", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := visible.Text(tt.in, tt.limit); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestJSON(t *testing.T) {
	tests := []struct {
		name, in string
		limit    int
		want     string
	}{
		{"keys in given order", `{"b":1,"a":[true,null]}`, 100, "{\n  \"b\": 1,\n  \"a\": [\n    true,\n    null\n  ]\n}"},
		{"numbers as written", `[1.0,1e3,10000000000000000000001]`, 100, "[\n  1.0,\n  1e3,\n  10000000000000000000001\n]"},
		{"empty ones", ` { "a" : [ ] , "b":{} } `, 100, "{\n  \"a\": [],\n  \"b\": {}\n}"},
		{"a scalar", `"x"`, 100, `"x"`},
		{"literal hidden", "\"a\u202eb\"", 100, `"a⟨U+202E⟩b"`},
		{"escaped hidden", `"a\u202eb\u0000"`, 100, `"a⟨U+202E⟩b⟨U+0000⟩"`},
		{"in keys too", "{\"a\u200b\":1}", 100, "{\n  \"a⟨U+200B⟩\": 1\n}"},
		{"escaped letters", `"\u0041\u00e9\ud83d\ude00"`, 100, `"Aé😀"`},
		{"lone surrogate", `"\ud83d\u0041"`, 100, `"⟨U+D83D⟩A"`},
		{"quotes stay escaped", `"\u0022,\"x\":\\"`, 100, `"\",\"x\":\\"`},
		{"line breaks stay escaped", `"a\nb\u000a\t\/"`, 100, `"a\nb\n\t/"`},
		{"a typed bracket", `"⟨U+202E⟩"`, 100, `"⟨U+27E8⟩U+202E⟩"`},
		{"twice the same key: both shown", `{"a":1,"a":2}`, 100, "{\n  \"a\": 1,\n  \"a\": 2\n}"},
		{"not JSON", "{a\u202e", 100, "{a⟨U+202E⟩"},
		{"cut", `["abcdef","x"]`, 9, "[\n  \"abcd…(8 more bytes)"},
		{"nothing", ``, 9, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := visible.JSON([]byte(tt.in), tt.limit); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestLargeInputIsQuick(t *testing.T) {
	const size = 1 << 20
	inputs := map[string]string{
		"ASCII":      strings.Repeat("a", size),
		"controls":   strings.Repeat("\x01", size),
		"unassigned": strings.Repeat("\U000effff", size/4),
		"invalid":    strings.Repeat("\xff", size),
		"nested":     strings.Repeat("[", size),
		"closed":     strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"string":     `"` + strings.Repeat(`\u202e`, size/6) + `"`,
		"numbers":    "[" + strings.Repeat("1,", size/2-1) + "1]",
	}
	for name, in := range inputs {
		for _, limit := range []int{4096, size} {
			text := best(func() { visible.Text(in, limit) })
			js := best(func() { visible.JSON([]byte(in), limit) })
			if text > quick || js > quick {
				t.Errorf("%s to %d bytes: text %v, JSON %v", name, limit, text, js)
			}
		}
	}
}

// quick is how long one mebibyte may take; generous, for the race detector on
// a busy machine.
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

func noneHidden(t *testing.T, out string, lines bool) {
	t.Helper()
	if !utf8.ValidString(out) {
		t.Fatalf("not UTF-8: %q", out)
	}
	for i, r := range out {
		switch {
		case lines && (r == '\n' || r == '\t'):
		case r == '⟨': // only ever as the start of a written-out character
			if rest := out[i:]; !strings.HasPrefix(rest, "⟨U+") && !strings.HasPrefix(rest, "⟨0x") {
				t.Fatalf("a bracket of the input came through: %q", out)
			}
		case visible.Hidden(r):
			t.Fatalf("hidden %U in %q", r, out)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "plain", "a\u202e⟨U+202E⟩", "\xff\xfe", "e\u0301\u0301", "\U000e0041", "a\nb"} {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit %= 1 << 16
		noneHidden(t, visible.Text(s, limit), false)
		noneHidden(t, visible.Lines(s, limit), true)
		noneHidden(t, visible.JSON([]byte(s), limit), true)
		if whole := visible.Text(s, 16*len(s)+16); strings.IndexFunc(s, visible.Hidden) < 0 &&
			utf8.ValidString(s) && !strings.ContainsRune(whole, '⟨') && whole != s {
			t.Fatalf("changed %q to %q", s, whole)
		}
		if got := visible.Text(s, limit); len(got) > max(limit, 0)+40 {
			t.Fatalf("%d bytes for a limit of %d", len(got), limit)
		}
	})
}

func FuzzJSON(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,{"b":"\u202e"}],"c":null}`, `"\ud800"`, `[[],{}]`, ` 1 `} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !json.Valid([]byte(s)) {
			return
		}
		out := visible.JSON([]byte(s), 1<<20)
		noneHidden(t, out, true)
		// Laying out changes no structure: it is still JSON unless it was cut.
		if len(s) < 1000 && !json.Valid([]byte(out)) {
			t.Fatalf("%q became %q", s, out)
		}
	})
}
