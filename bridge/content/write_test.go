package content_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"maunium.net/go/mautrix/id"

	"moothall/bridge/content"
)

func marshal(tb testing.TB, v any) string {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func TestWrittenContent(t *testing.T) {
	bold := new(content.Doc).P(content.B("a"), content.T(" b"))
	tests := []struct {
		name string
		in   any
		want string
	}{
		{"plain: nobody mentioned, no HTML", content.Notice(content.Say("hi @room")), `{"msgtype":"m.notice","body":"hi @room","m.mentions":{}}`},
		{
			"with markup", content.Text(bold, "@bob:example.org"),
			`{"msgtype":"m.text","body":"a b","format":"org.matrix.custom.html","formatted_body":"\u003cp\u003e\u003cstrong\u003ea\u003c/strong\u003e b\u003c/p\u003e","m.mentions":{"user_ids":["@bob:example.org"]}}`,
		},
		{
			"in a thread", content.InThread(content.Notice(content.Say("x")), "$r", "$l", ""),
			`{"msgtype":"m.notice","body":"x","m.relates_to":{"rel_type":"m.thread","event_id":"$r","m.in_reply_to":{"event_id":"$l"},"is_falling_back":true},"m.mentions":{}}`,
		},
		{
			"in a thread, latest unknown", content.InThread(content.Notice(content.Say("x")), "$r", "", ""),
			`{"msgtype":"m.notice","body":"x","m.relates_to":{"rel_type":"m.thread","event_id":"$r","m.in_reply_to":{"event_id":"$r"},"is_falling_back":true},"m.mentions":{}}`,
		},
		{
			"a true reply in a thread", content.InThread(content.Notice(content.Say("x")), "$r", "$l", "$q"),
			`{"msgtype":"m.notice","body":"x","m.relates_to":{"rel_type":"m.thread","event_id":"$r","m.in_reply_to":{"event_id":"$q"}},"m.mentions":{}}`,
		},
		{
			"an edit pings nobody", content.Edit("$o", content.InThread(content.Text(content.Say("x"), "@bob:example.org"), "$r", "", "")),
			`{"msgtype":"m.text","body":"* x","m.new_content":{"msgtype":"m.text","body":"x","m.mentions":{"user_ids":["@bob:example.org"]}},"m.relates_to":{"rel_type":"m.replace","event_id":"$o"},"m.mentions":{}}`,
		},
		{"a reaction", content.Reaction("$o", "✅"), `{"m.relates_to":{"rel_type":"m.annotation","event_id":"$o","key":"✅"}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := marshal(t, tt.in); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWrittenContentReadsBack(t *testing.T) {
	c := content.InThread(content.Text(content.Say("x"), bot), "$r", "$l", "")
	m := message(t, marshal(t, c))
	if m.ThreadRoot != "$r" || m.InReplyTo != "$l" || !m.IsFallingBack || !content.IsMentioned(&m, bot, name) {
		t.Errorf("got %+v", m)
	}
	m = message(t, marshal(t, content.Edit("$o", c)))
	if m.Replaces != "$o" || m.NewBody != "x" || content.IsMentioned(&m, bot, name) {
		t.Errorf("got %+v", m)
	}
}

func TestEditBodyIsCutBetweenCharacters(t *testing.T) {
	for n := range 8 {
		c := content.Edit("$o", content.Notice(content.Say(strings.Repeat("a", n)+strings.Repeat("☃", 500))))
		if !utf8.ValidString(c.Body) || len(c.Body) > 256 || !strings.HasSuffix(c.Body, "☃…") {
			t.Errorf("%d: %q", n, c.Body)
		}
		if len(c.NewContent.Body) != n+1500 {
			t.Error("the new content is cut")
		}
	}
}

func TestDoc(t *testing.T) {
	d := new(content.Doc).
		P(content.T("Run "), content.C("a<b"), content.T("?\nNow")).
		Code("x\n<y>").
		List([]content.Span{content.B("one")}, []content.Span{content.T("two")}).
		P(content.EventLink("card", "!r:example.org", "$e/1"))
	wantPlain := "Run a<b?\nNow\nx\n<y>\n• one\n• two\ncard (https://matrix.to/#/%21r:example.org/$e%2F1)"
	wantHTML := `<p>Run <code>a&lt;b</code>?<br>Now</p><pre><code>x` + "\n" + `&lt;y&gt;</code></pre><ul><li><strong>one</strong></li>` +
		`<li>two</li></ul><p><a href="https://matrix.to/#/%21r:example.org/$e%2F1">card</a></p>`
	if d.Plain() != wantPlain {
		t.Errorf("got  %q\nwant %q", d.Plain(), wantPlain)
	}
	if d.HTML() != wantHTML {
		t.Errorf("got  %q\nwant %q", d.HTML(), wantHTML)
	}
	if got := new(content.Doc).P(content.EventLink("x", "bad", `$"><b>`)).HTML(); got != "<p>x</p>" {
		t.Errorf("got %q", got)
	}
}

var ourTags = regexp.MustCompile(`</?(p|strong|code|pre|ul|li)>|<br>`)

func FuzzDoc(f *testing.F) {
	f.Add(`<script>@room</script>`)
	f.Add("<a href=\"https://matrix.to/#/@bob:example.org\">Bob</a>\n\x00\xff&lt;")
	f.Fuzz(func(t *testing.T, s string) {
		d := new(content.Doc).P(content.T(s), content.B(s), content.C(s)).Code(s).List([]content.Span{content.T(s)})
		rest := ourTags.ReplaceAllString(d.HTML(), "")
		if strings.ContainsAny(rest, "<>\"'\x00") || !utf8.ValidString(d.HTML()+d.Plain()) {
			t.Fatalf("markup came through: %q", d.HTML())
		}
		m := message(t, marshal(t, content.Notice(d)))
		if len(m.Pills) != 0 || len(m.Mentioned) != 0 || !m.HasMentions {
			t.Fatalf("mentions somebody: %+v", m)
		}
	})
}

func TestFitBody(t *testing.T) {
	tests := []struct {
		name, in string
		limit    int
		want     string
		cut      int
	}{
		{"fits", "abc", 3, "abc", 0},
		{"at a line", strings.Repeat("a", 40) + "\n" + strings.Repeat("b", 40), 76, strings.Repeat("a", 40) + "\n… (41 more bytes left out)", 41},
		{"no line to cut at", strings.Repeat("a", 80), 48, strings.Repeat("a", 19) + "\n… (61 more bytes left out)", 61},
		{"never within a character", strings.Repeat("é", 40), 49, strings.Repeat("é", 10) + "\n… (60 more bytes left out)", 60},
		{"hardly any room", "aéé", 2, "a", 4},
		{"none", "abc", -1, "", 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, cut := content.FitBody(tt.in, tt.limit)
			if got != tt.want || cut != tt.cut {
				t.Errorf("got %q, %d", got, cut)
			}
			if len(got) > max(tt.limit, 0) {
				t.Errorf("%d bytes", len(got))
			}
		})
	}
}

// T01 of the cases: keys with and without variation selectors, skin tones, words.
func TestReactionKeys(t *testing.T) {
	set, err := content.NewKeySet([]string{"👍", "✅", "approve"}, []string{"❌"})
	if err != nil {
		t.Fatal(err)
	}
	listed, err := content.NewKeySet([]string{"✅", "✔️"}, []string{"❌", "❎"})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, key    string
		want, listed content.Verdict
	}{
		{"a check mark", "\u2705", content.Approve, content.Approve},
		{"b with selector", "\u2705\ufe0f", content.Approve, content.Approve},
		{"c thumb", "\U0001f44d", content.Approve, content.None},
		{"d thumb with selector", "\U0001f44d\ufe0f", content.Approve, content.None},
		{"e thumb with skin tone", "\U0001f44d\U0001f3fd", content.Approve, content.None},
		{"f word", " ApprOve ", content.Approve, content.None},
		{"g cross", "\u274c", content.Reject, content.Reject},
		{"h cross with selector", "\u274c\ufe0f", content.Reject, content.Reject},
		{"i cross button", "\u274e", content.None, content.Reject},
		{"j heavy check mark as text", "\u2714\ufe0e", content.None, content.Approve},
		{"k party", "\U0001f389", content.None, content.None},
		{"l empty", "", content.None, content.None},
		{"m 5 kB", strings.Repeat("approve", 700), content.None, content.None},
		{"only a selector", "\ufe0f", content.None, content.None},
		{"not UTF-8", "\xff", content.None, content.None},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := set.Verdict(tt.key); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if got := listed.Verdict(tt.key); got != tt.listed {
				t.Errorf("where listed: got %v, want %v", got, tt.listed)
			}
			if (content.KeySet{}).Verdict(tt.key) != content.None {
				t.Error("the zero set decides")
			}
		})
	}
	for _, key := range []string{"1\ufe0f\u20e3", "1\u20e3"} { // n
		if got := content.Choice(key); got != 1 {
			t.Errorf("%q is choice %d", key, got)
		}
	}
	if content.Choice("0\u20e3") != 0 || content.Choice("1") != 0 || content.Choice("🔟") != 10 {
		t.Error("choices")
	}
}

func TestKeySetRefuses(t *testing.T) {
	for _, tt := range []struct{ approve, reject []string }{
		{[]string{""}, nil},
		{nil, []string{" \ufe0f "}},
		{[]string{"✅"}, []string{"✅\ufe0f"}},
		{[]string{strings.Repeat("x", 300)}, nil},
	} {
		if _, err := content.NewKeySet(tt.approve, tt.reject); err == nil {
			t.Errorf("%q and %q are accepted", tt.approve, tt.reject)
		}
	}
	if _, err := content.NewKeySet(content.DefaultApprove(), content.DefaultReject()); err != nil {
		t.Error(err)
	}
}

func FuzzKey(f *testing.F) {
	for _, s := range []string{"✅\ufe0f", "👍🏽", " Approve ", "1\ufe0f\u20e3", "İ", "\xff", "e\ufe0f\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k := content.Key(s)
		if len(k) > content.MaxKey || !utf8.ValidString(k) {
			t.Fatalf("%q", k)
		}
		if again := content.Key(k); again != k {
			t.Fatalf("%q, then %q, then %q", s, k, again)
		}
		if n := content.Choice(s); n < 0 || n > 10 {
			t.Fatal(n)
		}
	})
}

func TestRoot(t *testing.T) {
	// What is known: each event's place as Place gives it.
	known := map[id.EventID]struct {
		up    id.EventID
		reply bool
	}{
		"$root":     {"$root", false},
		"$threaded": {"$root", false},
		"$plain":    {"$plain", false},
		"$reply1":   {"$plain", true},
		"$reply2":   {"$reply1", true},
		"$tothread": {"$threaded", true},
		"$orphan":   {"$gone", true},
		"$loop1":    {"$loop2", true},
		"$loop2":    {"$loop1", true},
	}
	lookup := func(e id.EventID) (id.EventID, bool, bool) {
		k, ok := known[e]
		return k.up, k.reply, ok
	}
	reply := func(to id.EventID) content.Message {
		return content.Message{ID: "$e", Relation: content.Relation{InReplyTo: to}}
	}
	tests := []struct {
		name        string
		msg         content.Message
		root, fetch id.EventID
	}{
		{"plain", content.Message{ID: "$e"}, "$e", ""},
		{"in a thread", content.Message{ID: "$e", Relation: content.Relation{ThreadRoot: "$unknown", InReplyTo: "$x"}}, "$unknown", ""},
		{"reply to a plain message", reply("$plain"), "$plain", ""},
		{"reply into a thread", reply("$threaded"), "$root", ""},
		{"reply to a reply", reply("$reply2"), "$plain", ""},
		{"reply to a reply into a thread", reply("$tothread"), "$root", ""},
		{"parent unknown", reply("$far"), "$e", "$far"},
		{"grandparent unknown", reply("$orphan"), "$orphan", "$gone"},
		{"in a circle", reply("$loop1"), "$loop2", ""},
		{"reply to itself", reply("$e"), "$e", ""},
		{"edit of a threaded one", content.Message{ID: "$e", Relation: content.Relation{Replaces: "$threaded"}}, "$root", ""},
		{"edit of something unknown", content.Message{ID: "$e", Relation: content.Relation{Replaces: "$far"}}, "$far", "$far"},
		{"reaction", content.Message{ID: "$e", Relation: content.Relation{Annotates: "$plain"}}, "$e", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, fetch := content.Root(&tt.msg, lookup)
			if root != tt.root || fetch != tt.fetch {
				t.Errorf("got %q, fetch %q; want %q, %q", root, fetch, tt.root, tt.fetch)
			}
		})
	}
}

// FuzzRoot walks random graphs: byte i says where event i hangs.
func FuzzRoot(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3})
	f.Add([]byte{255, 0x81, 0x80, 0x82})
	f.Fuzz(func(t *testing.T, graph []byte) {
		event := func(i int) id.EventID { return id.EventID("$" + string(rune('0'+i))) }
		calls := 0
		lookup := func(e id.EventID) (id.EventID, bool, bool) {
			calls++
			i := int([]rune(string(e))[1] - '0')
			if i < 0 || i >= len(graph) {
				return "", false, false
			}
			return event(int(graph[i] & 0x7f)), graph[i]&0x80 != 0, true
		}
		for i := range min(len(graph), 128) {
			calls = 0
			m := content.Message{ID: event(i), Relation: content.Relation{InReplyTo: event(int(graph[i] & 0x7f))}}
			root, fetch := content.Root(&m, lookup)
			if root == "" || calls > content.MaxAncestors {
				t.Fatalf("root %q, fetch %q after %d calls", root, fetch, calls)
			}
			again, _ := content.Root(&m, lookup)
			if again != root {
				t.Fatal("not the same twice")
			}
		}
	})
}
