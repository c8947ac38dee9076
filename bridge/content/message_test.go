package content_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"maunium.net/go/mautrix/id"

	"moothall/bridge/content"
)

const (
	bot  = id.UserID("@moothall:example.org")
	name = "Moot Hall"
)

// message parses a message event with the given content.
func message(tb testing.TB, body string) content.Message {
	tb.Helper()
	m, err := content.Parse([]byte(`{"type":"m.room.message","event_id":"$e","room_id":"!r:example.org",` +
		`"sender":"@alice:example.org","origin_server_ts":1700000000000,"content":` + body + `}`))
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestParseReadsAnEvent(t *testing.T) {
	m := message(t, `{"msgtype":"m.text","body":"hello"}`)
	if m.Type != "m.room.message" || m.ID != "$e" || m.Room != "!r:example.org" || m.Sender != "@alice:example.org" ||
		m.SentAt != 1700000000000 || m.MsgType != "m.text" || m.Body != "hello" || m.StateKey != nil || m.HasMentions {
		t.Errorf("got %+v", m)
	}
}

func TestParseRefusesOnlyWhatIsNoObject(t *testing.T) {
	for _, raw := range []string{``, `null`, `[]`, `"x"`, `1`, `{`, `{"a":}`} {
		if _, err := content.Parse([]byte(raw)); !errors.Is(err, content.ErrNotObject) {
			t.Errorf("%q: %v", raw, err)
		}
	}
	if _, err := content.Parse(make([]byte, content.MaxEvent+1)); !errors.Is(err, content.ErrTooLarge) {
		t.Error(err)
	}
	m, err := content.Parse([]byte(`{"type":1,"event_id":[],"room_id":{},"sender":"alice","origin_server_ts":"x",` +
		`"state_key":5,"redacts":true,"content":[]}`))
	if err != nil || m.Type != "" || m.ID != "" || m.Room != "" || m.Sender != "" || m.StateKey != nil || m.Redacts != "" {
		t.Errorf("wrong types are not absent: %+v, %v", m, err)
	}
}

func TestWrongTypesInContentAreAbsent(t *testing.T) {
	m := message(t, `{"msgtype":{},"body":["x"],"format":1,"formatted_body":{},"m.mentions":[],"m.relates_to":"x",
		"Body":"wrong case"}`)
	if m.MsgType != "" || m.Body != "" || m.HasMentions || m.Relation != (content.Relation{}) {
		t.Errorf("got %+v", m)
	}
	m = message(t, `{"body":"x","m.mentions":{"user_ids":["@bob:example.org",1,"bob","@bob:example.org","@a b:c"]},
		"m.relates_to":{"rel_type":"m.thread","event_id":5,"m.in_reply_to":"x","is_falling_back":"true"}}`)
	if len(m.Mentioned) != 1 || m.Mentioned[0] != "@bob:example.org" || m.Relation != (content.Relation{}) {
		t.Errorf("got %+v", m)
	}
}

func TestRelations(t *testing.T) {
	tests := []struct {
		name, in string
		want     content.Relation
	}{
		{"none", `{}`, content.Relation{}},
		{
			"thread", `{"m.relates_to":{"rel_type":"m.thread","event_id":"$r","is_falling_back":true,"m.in_reply_to":{"event_id":"$p"}}}`,
			content.Relation{ThreadRoot: "$r", InReplyTo: "$p", IsFallingBack: true},
		},
		{
			"thread under its older name", `{"m.relates_to":{"rel_type":"io.element.thread","event_id":"$r"}}`,
			content.Relation{ThreadRoot: "$r"},
		},
		{"reply", `{"m.relates_to":{"m.in_reply_to":{"event_id":"$p"}}}`, content.Relation{InReplyTo: "$p"}},
		{
			"edit", `{"body":"* b","m.new_content":{"body":"b"},"m.relates_to":{"rel_type":"m.replace","event_id":"$o"}}`,
			content.Relation{Replaces: "$o", NewBody: "b"},
		},
		{
			"reaction", `{"m.relates_to":{"rel_type":"m.annotation","event_id":"$o","key":"✅"}}`,
			content.Relation{Annotates: "$o", Key: "✅"},
		},
		{
			"reaction of 5 kB", `{"m.relates_to":{"rel_type":"m.annotation","event_id":"$o","key":"` + strings.Repeat("k", 5000) + `"}}`,
			content.Relation{Annotates: "$o", KeyTooLong: true},
		},
		{"unknown", `{"m.relates_to":{"rel_type":"m.reference","event_id":"$o"}}`, content.Relation{}},
		{"no event id", `{"m.relates_to":{"rel_type":"m.thread","event_id":"r"}}`, content.Relation{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := message(t, tt.in).Relation; got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestRedactsOldAndNewPlace(t *testing.T) {
	for _, raw := range []string{
		`{"type":"m.room.redaction","redacts":"$x","content":{}}`,
		`{"type":"m.room.redaction","content":{"redacts":"$x"}}`,
	} {
		if m, err := content.Parse([]byte(raw)); err != nil || m.Redacts != "$x" {
			t.Errorf("%s: %q, %v", raw, m.Redacts, err)
		}
	}
	if m := message(t, `{"redacts":"$x"}`); m.Redacts != "" {
		t.Error("a message redacts nothing")
	}
}

func TestBody(t *testing.T) {
	reply := `,"m.relates_to":{"m.in_reply_to":{"event_id":"$p"}}}`
	tests := []struct{ name, in, want string }{
		{"older reply", `{"body":"> <@bob:example.org> one\n> two\n\nyes"` + reply, "yes"},
		{"older reply to an emote", `{"body":"> * <@bob:example.org> waves\n\nyes\nno"` + reply, "yes\nno"},
		{"only a quotation", `{"body":"> <@bob:example.org> one"` + reply, ""},
		{"a quote by hand stays", `{"body":"> one\n\nyes"` + reply, "> one\n\nyes"},
		{"not a reply: stays", `{"body":"> <@bob:example.org> one\n\nyes"}`, "> <@bob:example.org> one\n\nyes"},
		{"a NUL", `{"body":"a\u0000b"}`, "a\ufffdb"},
		{"lone surrogate", `{"body":"a\ud800b"}`, "a\ufffdb"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := message(t, tt.in).Body; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	m := message(t, `{"body":"`+strings.Repeat("é", content.MaxBody)+`"}`)
	if len(m.Body) > content.MaxBody || !m.Cut || !utf8.ValidString(m.Body) {
		t.Errorf("%d bytes, cut %v", len(m.Body), m.Cut)
	}
}

func TestFiles(t *testing.T) {
	m := message(t, `{"msgtype":"m.file","body":"see","filename":"a.pdf","info":{"mimetype":"application/pdf"}}`)
	if !m.HasFile() || m.File != "a.pdf" || m.MIME != "application/pdf" {
		t.Errorf("got %+v", m)
	}
	if m := message(t, `{"msgtype":"m.image","body":"b.png"}`); m.File != "b.png" || m.MIME != "" {
		t.Errorf("got %+v", m)
	}
}

func html(tb testing.TB, body, formatted string) content.Message {
	tb.Helper()
	b, err := json.Marshal(map[string]string{
		"msgtype": "m.text", "body": body, "format": "org.matrix.custom.html", "formatted_body": formatted,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return message(tb, string(b))
}

func TestPills(t *testing.T) {
	tests := []struct {
		name, html string
		want       []id.UserID
	}{
		{"matrix.to", `<a href="https://matrix.to/#/@bob:example.org">Bob</a>`, []id.UserID{"@bob:example.org"}},
		{"encoded", `<a href='https://matrix.to/#/%40bob%3Aexample.org?via=x'>Bob</a>`, []id.UserID{"@bob:example.org"}},
		{"matrix URI", `<A HREF=matrix:u/bob:example.org?action=chat>Bob</A>`, []id.UserID{"@bob:example.org"}},
		{"two", `<a href="matrix:u/a:b">A</a> and <a href="matrix:u/c:d">C</a>`, []id.UserID{"@a:b", "@c:d"}},
		{"quoted in a reply", `<mx-reply><a href="matrix:u/a:b">A</a></mx-reply><a href="matrix:u/c:d">C</a>`, []id.UserID{"@c:d"}},
		{"a room", `<a href="https://matrix.to/#/!r:example.org/$e">x</a>`, nil},
		{"another site", `<a href="https://example.org/#/@bob:example.org">x</a>`, nil},
		{"never closed", `<a href="matrix:u/a:b">A`, []id.UserID{"@a:b"}},
		{"a list that counts from far", `<ol start="-9223372036854775808"><li><a href="matrix:u/a:b">A</a></li></ol>`, []id.UserID{"@a:b"}},
		{"in a comment", `<!-- <a href="matrix:u/a:b">A</a> -->`, nil},
		{"deep", strings.Repeat("<b>", 9000) + `<a href="matrix:u/a:b">A</a>`, []id.UserID{"@a:b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := html(t, "x", tt.html).Pills
			if len(got) != len(tt.want) {
				t.Fatalf("got %+v", got)
			}
			for i := range got {
				if got[i].User != tt.want[i] {
					t.Errorf("got %+v", got)
				}
			}
		})
	}
}

func TestMentions(t *testing.T) {
	pill := `<a href="https://matrix.to/#/@moothall:example.org">Moot Hall</a>`
	text := func(body string) content.Message {
		b, _ := json.Marshal(body)
		return message(t, `{"msgtype":"m.text","body":`+string(b)+`}`)
	}
	tests := []struct {
		name  string
		m     content.Message
		want  bool
		strip string
	}{
		{"m.mentions with unrelated text", message(t, `{"body":"hi","m.mentions":{"user_ids":["@moothall:example.org"]}}`), true, "hi"},
		{"pill only", html(t, "Moot Hall", pill), true, ""},
		{"pill, then a command", html(t, "Moot Hall: !ping", pill+": !ping"), true, "!ping"},
		{"pill labelled in brackets", html(t, "@[Hall Bot] !ping", strings.Replace(pill, "Moot Hall", "@[Hall Bot]", 1)+" !ping"), true, "!ping"},
		{"pill as a Markdown link", html(t, "[Moot Hall](https://matrix.to/#/@moothall:example.org) !ping <x>", pill+" !ping &lt;x&gt;"), true, "!ping <x>"},
		{"pill whose body is the ID", html(t, "@moothall:example.org: !ping", pill+": !ping"), true, "!ping"},
		{"pill in the middle", html(t, "ask Moot Hall now", "ask "+pill+" now"), true, "ask Moot Hall now"},
		{"pill in a quotation only", html(t, "hi", "<mx-reply>"+pill+"</mx-reply>hi"), false, "hi"},
		{"name and colon", text("moothall: !ping"), true, "!ping"},
		{"name and comma", text("MootHall, !ping"), true, "!ping"},
		{"at name", text("@moothall ping"), true, "ping"},
		{"at name, command at once", text("@moothall:!ping"), true, "!ping"},
		{"display name", text("moot hall: what time is it"), true, "what time is it"},
		{"full ID", text("@moothall:example.org !ping"), true, "!ping"},
		{"spaces around", text("\n  moothall :  !ping  "), true, "!ping"},
		{"somebody of that name elsewhere", text("@moothall:elsewhere.example !ping"), false, "@moothall:elsewhere.example !ping"},
		{"a longer server", text("@moothall:example.org.evil.example !ping"), false, "@moothall:example.org.evil.example !ping"},
		{"a longer word", text("moothalls: !ping"), false, "moothalls: !ping"},
		{"another word", text("the-moothall is"), false, "the-moothall is"},
		{"word in the text, client without m.mentions", text("please, moothall!"), true, "please, moothall!"},
		{"word in the text, client with m.mentions", message(t, `{"body":"please, moothall!","m.mentions":{}}`), false, "please, moothall!"},
		{"in an address", text("see https://example.org/moothall and moothall.example.org"), false, "see https://example.org/moothall and moothall.example.org"},
		{"nothing", text(""), false, ""},
		{"a command", text("!ping"), false, "!ping"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := content.IsMentioned(&tt.m, bot, name); got != tt.want {
				t.Errorf("mentioned %v", got)
			}
			if got := content.StripMention(&tt.m, bot, name); got != tt.strip {
				t.Errorf("stripped to %q, want %q", got, tt.strip)
			}
		})
	}
}

func TestLargeEventIsQuick(t *testing.T) {
	const size = content.MaxEvent - 400
	inputs := map[string]string{
		"body":      `{"body":"` + strings.Repeat("m ", size/2) + `"}`,
		"escapes":   `{"body":"` + strings.Repeat(`\u0000`, size/6) + `"}`,
		"tags":      `{"format":"org.matrix.custom.html","formatted_body":"` + strings.Repeat("<a href=x>", size/10) + `"}`,
		"open tags": `{"format":"org.matrix.custom.html","formatted_body":"` + strings.Repeat("<a ", size/3) + `"}`,
		"pills":     `{"format":"org.matrix.custom.html","formatted_body":"` + strings.Repeat("<a href=matrix:u/a:b>", size/21) + `"}`,
		"mentions":  `{"m.mentions":{"user_ids":["@a:b"` + strings.Repeat(`,"@a:b"`, size/7-10) + `]}}`,
		"keys":      `{` + strings.Repeat(`"a":1,`, size/6-10) + `"b":1}`,
		"quotes":    `{"body":"> <@a:b>` + strings.Repeat(`>\n`, size/3-60) + `","m.relates_to":{"m.in_reply_to":{"event_id":"$p"}}}`,
	}
	for what, in := range inputs {
		took := best(func() {
			m := message(t, in)
			content.IsMentioned(&m, "@mmmmmmmm:example.org", name)
			content.StripMention(&m, bot, name)
		})
		if took > quick {
			t.Errorf("%s took %v", what, took)
		}
		t.Logf("%s: %v", what, took)
	}
}

// quick is how long the largest event may take; generous, for the race detector on
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

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"type":"m.room.message","content":{"body":"moothall: x","msgtype":"m.text"}}`,
		`{"content":{"m.relates_to":{"rel_type":"m.thread","event_id":"$r","m.in_reply_to":{"event_id":"$p"}},"body":"> <@a:b> c\n\nd"}}`,
		`{"content":{"m.mentions":{"user_ids":["@a:b"]},"format":"org.matrix.custom.html","formatted_body":"<a href='matrix:u/a:b'>x"}}`,
		`{"state_key":"","redacts":"$x","content":{"redacts":"$y"}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := content.Parse(raw)
		if err != nil {
			return
		}
		if len(m.Body) > content.MaxBody || len(m.Key) > content.MaxKey ||
			!utf8.ValidString(m.Body+m.Key+m.File+string(m.ID)+string(m.Sender)) ||
			strings.ContainsRune(m.Body+m.Key+string(m.ID), 0) {
			t.Fatalf("out of bounds: %+v", m)
		}
		content.IsMentioned(&m, bot, name)
		if got := content.StripMention(&m, bot, name); len(got) > content.MaxBody {
			t.Fatal("stripping made it longer")
		}
		content.Root(&m, func(id.EventID) (id.EventID, bool, bool) { return "", false, false })
	})
}

func FuzzPills(f *testing.F) {
	f.Add("Bob hi", `<a href="https://matrix.to/#/@bob:example.org">Bob</a> hi`)
	f.Add("x", `<mx-reply><a href=matrix:u/a:b></mx-reply><script><a href=matrix:u/a:b>`)
	f.Add("x", `<ol start="-9223372036854775808"><li>x</li></ol><a`)
	f.Fuzz(func(t *testing.T, body, formatted string) {
		m := html(t, body, formatted)
		for _, p := range m.Pills {
			if !strings.HasPrefix(string(p.User), "@") || len(p.User) > 255 || len(p.Label)+len(p.Rest) > 4*content.MaxBody {
				t.Fatalf("%+v", p)
			}
		}
		content.IsMentioned(&m, bot, name)
		content.StripMention(&m, bot, name)
	})
}
