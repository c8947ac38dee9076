package bridge

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"moothall/commands"
	"moothall/internal/visible"
)

var update = flag.Bool("update", false, "rewrite what the bot says in the transcripts")

// TestTranscripts plays each chat in testdata/transcript against the real
// bridge, commands, gate and store. Lines of people and of what happens are
// input; the indented lines are what the bot is expected to do next.
// testdata/transcript/README.md says how they are written.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcript/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { playFile(t, file, dir) })
			// A chat that went otherwise has ended above, and proves nothing.
			for _, number := range proves(t, file) {
				t.Run(number, func(*testing.T) {})
			}
		})
	}
}

// proves gives the numbers of the promises that a transcript says it holds.
func proves(t *testing.T, file string) []string {
	t.Helper()
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(ar.Comment), "\n")
	numbers, _ := strings.CutPrefix(first, "proves: ")
	if numbers == first {
		return nil
	}
	return strings.Fields(numbers)
}

func playFile(t *testing.T, file, dir string) {
	t.Helper()
	ar, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{t: t, names: map[string]string{}}
	var rooms []roomSpec
	chat := -1
	var tools []string
	for i, f := range ar.Files {
		switch kind, name, _ := strings.Cut(f.Name, " "); kind {
		case "room":
			rooms = append(rooms, parseRoom(t, name, string(f.Data)))
		case "tools":
			tools = strings.Fields(string(f.Data))
		case "chat":
			chat = i
		default:
			t.Fatalf("no section %q", f.Name)
		}
	}
	w, end := newWorld(t, dir, tools...)
	defer end()
	p.w = w
	for _, r := range rooms {
		w.hs.Add(r)
	}
	want := string(ar.Files[chat].Data)
	got := p.play(want)
	if got == want {
		return
	}
	if *update {
		ar.Files[chat].Data = []byte(got)
		if err := os.WriteFile(file, txtar.Format(ar), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the chat went otherwise (go test ./bridge -update rewrites it).\n%s", firstDifference(want, got))
}

// firstDifference shows where two texts part, with what comes before.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(w) && i < len(g) && w[i] == g[i] {
		i++
	}
	cut := func(s []string) string { return strings.Join(s[max(0, min(len(s), i-6)):min(len(s), i+12)], "\n") }
	return "want:\n" + cut(w) + "\n\ngot:\n" + cut(g)
}

func parseRoom(t *testing.T, name, text string) roomSpec {
	t.Helper()
	if name == "" {
		name = "town"
	}
	s := roomSpec{id: "!" + name + ":" + domain, name: "Room " + name, members: map[string]int64{}}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch {
		case f[0] == "version":
			s.version = f[1]
		case f[0] == "creator":
			s.creator = user(f[1])
		case f[0] == "additional":
			s.additional = append(s.additional, user(f[1]))
		case f[0] == "unnamed":
			s.name = ""
		case f[0] == "encrypted":
			s.encrypted = true
		case strings.TrimSpace(line) == "no power levels":
			s.noLevels = true
		default:
			n := 0
			if len(f) > 1 {
				var err error
				if n, err = strconv.Atoi(f[1]); err != nil {
					t.Fatalf("room: %q: %v", line, err)
				}
			}
			s.members[user(f[0])] = int64(n)
		}
	}
	return s
}

// player carries out the lines of a chat and writes down what follows.
type player struct {
	t     *testing.T
	w     *world
	out   strings.Builder
	names map[string]string // approval and execution ids → A1, E1
	seen  int               // how much of the bot's doing was written down
	room  string            // of the last person's message
	root  string            // thread of it
	last  map[string]string // a person's last message
	nth   map[string]int
}

func (p *player) play(chat string) string {
	p.last, p.nth, p.room = map[string]string{}, map[string]int{}, town
	for line := range strings.Lines(chat) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		p.out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		wait := 5 * time.Second
		if d, ok := p.happens(line); ok {
			wait = max(wait, d)
		} else {
			p.person(line)
		}
		if slices.Contains(p.w.demo, "demo.hold") {
			p.w.settle(wait)
		} else {
			p.w.later(wait)
		}
		p.write()
	}
	return p.out.String()
}

var (
	reLater  = regexp.MustCompile(`^(\S+) later$`)
	rePower  = regexp.MustCompile(`^(\S+) has power (-?\d+)$`)
	reMember = regexp.MustCompile(`^(\S+) (leaves|joins|removes|bans|invites)(?: (\S+))?(?: to (\S+))?$`)
	reFails  = regexp.MustCompile(`^database fails: (.*)$`)
)

// happens carries out a line in brackets.
func (p *player) happens(line string) (wait time.Duration, ok bool) {
	what, ok := strings.CutPrefix(line, "(")
	if !ok {
		return 0, false
	}
	what = strings.TrimSuffix(what, ")")
	hs := p.w.hs
	switch what {
	case "homeserver down":
		hs.with(func() { hs.down = true })
	case "homeserver up":
		hs.with(func() { hs.down, hs.deaf = false, false })
	case "homeserver answers nothing but takes events":
		hs.with(func() { hs.deaf = true })
	case "moothall stops":
		p.w.stop()
	case "moothall is killed":
		p.w.kill()
	case "moothall starts":
		p.w.start()
	case "restart":
		p.w.stop()
		p.w.start()
	case "database works":
		p.w.failing()
	case "old events cannot be fetched":
		hs.with(func() { hs.broken["Event"] = &APIError{Status: 403, Code: "M_FORBIDDEN"} })
	case "the homeserver does not answer to changes":
		hs.with(func() { hs.broken["SetState"] = errDown })
	case "the room is upgraded":
		key := ""
		hs.Put(p.room, fakeEvent{Sender: user("alice"), Type: typeTombstone, StateKey: &key, Content: map[string]any{"replacement_room": "!new:" + domain}})
	case "the room becomes encrypted":
		key := ""
		hs.Put(p.room, fakeEvent{Sender: user("alice"), Type: typeEncryption, StateKey: &key, Content: map[string]any{"algorithm": "m.megolm.v1.aes-sha2"}})
	default:
		return p.change(what)
	}
	return 0, true
}

func (p *player) change(what string) (time.Duration, bool) {
	hs := p.w.hs
	if m := reLater.FindStringSubmatch(what); m != nil {
		d, err := time.ParseDuration(m[1])
		if err != nil {
			p.t.Fatal(err)
		}
		return d, true
	}
	if m := rePower.FindStringSubmatch(what); m != nil {
		n, _ := strconv.ParseInt(m[2], 10, 64)
		hs.SetPower(p.room, user(m[1]), n)
		return 0, true
	}
	if m := reFails.FindStringSubmatch(what); m != nil {
		p.w.failing(strings.Split(m[1], ", ")...)
		return 0, true
	}
	m := reMember.FindStringSubmatch(what)
	if m == nil {
		p.t.Fatalf("what is (%s)?", what)
	}
	by, who, room := user(m[1]), user(m[1]), p.room
	if m[3] != "" {
		who = user(m[3])
	}
	if m[4] != "" {
		room = "!" + m[4] + ":" + domain
	}
	ship := map[string]string{"leaves": "leave", "joins": "join", "removes": "leave", "bans": "ban", "invites": "invite"}[m[2]]
	hs.with(func() { hs.member(hs.rooms[room], by, who, ship) })
	return 0, true
}

var (
	reReacts = regexp.MustCompile(`^(\S+) reacts (.+) to (.+)$`)
	reTakes  = regexp.MustCompile(`^(\S+) deletes (.+)$`)
	reSays   = regexp.MustCompile(`^(\S+?)( .*?)?> (.*)$`)
	reName   = regexp.MustCompile(`\b[AE]\d+\b`)
)

// person carries out a person's line.
func (p *player) person(line string) {
	if rest, ok := strings.CutPrefix(line, "["); ok {
		name, after, _ := strings.Cut(rest, "] ")
		p.room, line = "!"+name+":"+domain, after
	} else {
		p.room = town
	}
	if m := reReacts.FindStringSubmatch(line); m != nil {
		p.w.hs.Put(p.room, fakeEvent{Sender: user(m[1]), Type: typeReaction, Content: reactionTo(p.target(m[3]), p.unquote(m[2]))})
		return
	}
	if m := reTakes.FindStringSubmatch(line); m != nil && !strings.Contains(line, ">") {
		target := p.target(m[2])
		p.w.hs.Put(p.room, fakeEvent{Sender: user(m[1]), Type: typeRedaction, Redacts: target, Content: map[string]any{"redacts": target}})
		return
	}
	m := reSays.FindStringSubmatch(line)
	if m == nil {
		p.t.Fatalf("cannot read the line %q", line)
	}
	who, how, text := user(m[1]), strings.TrimSpace(m[2]), p.ids(p.unquote(m[3]))
	e := fakeEvent{Sender: who, Type: typeMessage, Content: map[string]any{"msgtype": "m.text", "body": text}, At: p.w.hs.now()}
	rel := map[string]any{}
	for how != "" {
		var word string
		word, how, _ = strings.Cut(how, "; ")
		switch {
		case word == "in the thread":
			rel["rel_type"], rel["event_id"], rel["is_falling_back"] = "m.thread", p.root, true
		case word == "in the old thread":
			rel["rel_type"], rel["event_id"] = "io.element.thread", p.root
		case strings.HasPrefix(word, "in the thread of "):
			rel["rel_type"], rel["event_id"], rel["is_falling_back"] = "m.thread", p.target(strings.TrimPrefix(word, "in the thread of ")), true
		case strings.HasPrefix(word, "replies to "):
			rel["m.in_reply_to"] = map[string]any{"event_id": p.target(strings.TrimPrefix(word, "replies to "))}
			delete(rel, "is_falling_back")
		case word == "edits":
			rel["rel_type"], rel["event_id"] = "m.replace", p.last[who]
			e.Content["m.new_content"] = map[string]any{"msgtype": "m.text", "body": text}
			// Without the star that most clients put, so that only the relation tells.
		case word == "notice", word == "emote":
			e.Content["msgtype"] = "m." + word
		case word == "mentions moothall":
			e.Content["m.mentions"] = map[string]any{"user_ids": []string{botID}}
		case word == "mentions nobody":
			e.Content["m.mentions"] = map[string]any{}
		case word == "sends":
			e.Content = nil
			if err := json.Unmarshal([]byte(text), &e.Content); err != nil {
				p.t.Fatal(err)
			}
		case word == "encrypted":
			e.Type, e.Content = "m.room.encrypted", map[string]any{"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x"}
		case strings.HasSuffix(word, " ago"):
			d, err := time.ParseDuration(strings.TrimSuffix(word, " ago"))
			if err != nil {
				p.t.Fatal(err)
			}
			e.At = e.At.Add(-d)
		default:
			p.t.Fatalf("how is %q said?", word)
		}
	}
	if len(rel) > 0 {
		e.Content["m.relates_to"] = rel
	}
	id := p.w.hs.Put(p.room, e)
	if rel["rel_type"] == "m.replace" {
		return
	}
	p.last[who] = id
	p.root = id
	switch rel["rel_type"] {
	case "m.thread", "io.element.thread":
		p.root = rel["event_id"].(string)
	default:
		if in, ok := rel["m.in_reply_to"].(map[string]any); ok {
			p.root = p.rootOf(in["event_id"].(string))
		}
	}
}

// rootOf is where the player thinks that an event hangs.
func (p *player) rootOf(id string) string {
	for {
		e, ok := p.find(id)
		if !ok {
			return id
		}
		rel, _ := e.Content["m.relates_to"].(map[string]any)
		if t := rel["rel_type"]; t == "m.thread" || t == "io.element.thread" {
			return rel["event_id"].(string)
		}
		in, ok := rel["m.in_reply_to"].(map[string]any)
		if !ok {
			return id
		}
		id = in["event_id"].(string)
	}
}

func (p *player) find(id string) (found fakeEvent, ok bool) {
	p.w.hs.with(func() {
		for _, r := range p.w.hs.rooms {
			for _, e := range r.events {
				if e.ID == id {
					found, ok = e, true
				}
			}
		}
	})
	return found, ok
}

// unquote reads text in quotes as Go does, for characters nobody can see.
func (p *player) unquote(s string) string {
	if len(s) > 1 && s[0] == '"' && strings.Contains(s, `\`) {
		u, err := strconv.Unquote(s)
		if err != nil {
			p.t.Fatalf("%s: %v", s, err)
		}
		return u
	}
	return s
}

// target finds the event a person means.
func (p *player) target(what string) string {
	what = strings.TrimPrefix(what, "the ")
	if who, ok := strings.CutSuffix(what, "'s message"); ok {
		return p.last[user(who)]
	}
	if strings.HasPrefix(what, "$") {
		return what
	}
	kind, name, _ := strings.Cut(what, " ")
	id := ""
	p.w.hs.with(func() {
		for _, e := range p.w.hs.sent {
			if e.Type != typeMessage || e.Content["m.new_content"] != nil {
				continue
			}
			body, _ := e.Content["body"].(string)
			card, isCard := e.Content[keyCard].(map[string]any)
			match := false
			switch kind {
			case "card":
				match = isCard && (name == "" || p.names[card["approval"].(string)] == name)
			case "notice":
				match = strings.HasPrefix(body, "Outcome unknown")
			case "answer":
				match = !isCard
			}
			if match {
				id = e.ID
			}
		}
	})
	if id == "" {
		p.t.Fatalf("there is no %s", what)
	}
	return id
}

// ids puts the real ids for A1, E1 into what a person types.
func (p *player) ids(s string) string {
	return reName.ReplaceAllStringFunc(s, func(name string) string {
		for id, n := range p.names {
			if n == name {
				return commands.Short(id)
			}
		}
		return name
	})
}

// named puts A1 and E1 for ids, which differ every time.
func (p *player) named(s string) string {
	for _, a := range p.w.approvals() {
		s = p.name("A", a.ID, s)
	}
	ex := p.w.executions()
	slices.Reverse(ex)
	for _, e := range ex {
		s = p.name("E", e.ID, s)
	}
	return s
}

func (p *player) name(letter, id, s string) string {
	short := commands.Short(id)
	if p.names[id] == "" {
		if letter == "E" && !strings.Contains(s, short) {
			return s
		}
		p.nth[letter]++
		p.names[id] = fmt.Sprint(letter, p.nth[letter])
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, id, p.names[id]), short, p.names[id])
}

// write writes down what the bot did since the last time. Cards are brought up
// to date beside what a thread is told, so the two are sorted, edits first.
func (p *player) write() {
	var fresh []fakeEvent
	p.w.hs.with(func() {
		fresh = slices.Clone(p.w.hs.sent[p.seen:])
		p.seen = len(p.w.hs.sent)
	})
	slices.SortStableFunc(fresh, func(a, b fakeEvent) int { return rank(a) - rank(b) })
	for _, e := range fresh {
		if err := p.sound(e); err != nil {
			p.t.Errorf("%s: %v", e.ID, err)
		}
		lines := strings.Split(p.shown(e), "\n")
		for i, l := range lines {
			if i > 0 {
				l = "  " + l
			}
			p.out.WriteString(strings.TrimRight("  "+l, " ") + "\n")
		}
	}
}

func rank(e fakeEvent) int {
	switch {
	case e.Content["m.new_content"] != nil:
		return 0
	case e.Type == typeRedaction:
		return 1
	}
	return 2
}

// shown is one thing the bot did, for people.
func (p *player) shown(e fakeEvent) string {
	place := ""
	if e.Room != p.room {
		place = "[" + strings.TrimSuffix(strings.TrimPrefix(e.Room, "!"), ":"+domain) + "] "
	}
	if e.StateKey != nil {
		key := *e.StateKey
		if key != "" {
			key = " of " + key
		}
		raw, _ := json.Marshal(e.Content)
		return fmt.Sprintf("%s* sets %s%s: %s", place, e.Type, key, visible.Text(string(raw), 4000))
	}
	switch e.Type {
	case typeReaction:
		rel := e.Content["m.relates_to"].(map[string]any)
		return fmt.Sprintf("%s* reacts %s to %s", place, rel["key"], p.what(rel["event_id"].(string)))
	case typeRedaction:
		if t, ok := p.find(e.Redacts); ok && t.Type == typeReaction {
			rel := t.Content["m.relates_to"].(map[string]any)
			return fmt.Sprintf("%s* takes %s off %s", place, rel["key"], p.what(rel["event_id"].(string)))
		}
		return place + "* redacts " + p.what(e.Redacts)
	}
	if fresh, ok := e.Content["m.new_content"].(map[string]any); ok {
		rel := e.Content["m.relates_to"].(map[string]any)
		return fmt.Sprintf("%s* edits %s:\n%s", place, p.what(rel["event_id"].(string)), p.body(fresh))
	}
	who := "moothall"
	if rel, ok := e.Content["m.relates_to"].(map[string]any); !ok {
		who += " in the room"
	} else if rel["event_id"] != p.root {
		who += " in the thread of " + p.what(rel["event_id"].(string))
	}
	if m, _ := e.Content["m.mentions"].(map[string]any); m["user_ids"] != nil {
		for _, u := range m["user_ids"].([]any) {
			who += " to " + u.(string)
		}
	}
	if card, ok := e.Content[keyCard].(map[string]any); ok {
		p.named(card["approval"].(string))
		return fmt.Sprintf("%s%s posts card %s:\n%s", place, who, p.names[card["approval"].(string)], p.body(e.Content))
	}
	return place + who + ": " + p.body(e.Content)
}

func (p *player) body(c map[string]any) string {
	body, _ := c["body"].(string)
	return p.named(body)
}

// what names an event for people.
func (p *player) what(id string) string {
	e, ok := p.find(id)
	if !ok {
		return id
	}
	if card, ok := e.Content[keyCard].(map[string]any); ok {
		p.named(card["approval"].(string))
		return "card " + p.names[card["approval"].(string)]
	}
	body, _ := e.Content["body"].(string)
	if strings.HasPrefix(body, "Outcome unknown") {
		return "the notice"
	}
	if r := []rune(body); len(r) > 24 {
		body = string(r[:24]) + "…"
	}
	return "“" + p.named(body) + "”"
}

var reTag = regexp.MustCompile(`</?([a-z]+)[^>]*>`)

// sound checks what holds for everything the bot ever says.
func (p *player) sound(e fakeEvent) error {
	if e.Type != typeMessage {
		return nil
	}
	var errs []error
	if _, ok := e.Content["m.mentions"]; !ok {
		errs = append(errs, errors.New("no m.mentions: a client might ping whoever the text names"))
	}
	c := e.Content
	if fresh, ok := c["m.new_content"].(map[string]any); ok {
		c = fresh
		if _, ok := c["m.mentions"]; !ok {
			errs = append(errs, errors.New("no m.mentions in an edit"))
		}
	} else if rel, ok := c["m.relates_to"].(map[string]any); ok {
		if rel["rel_type"] != "m.thread" || rel["is_falling_back"] != true || rel["m.in_reply_to"] == nil {
			errs = append(errs, fmt.Errorf("the thread relation lacks something: %v", rel))
		}
	}
	html, _ := c["formatted_body"].(string)
	for _, m := range reTag.FindAllStringSubmatch(html, -1) {
		if !slices.Contains([]string{"p", "br", "strong", "code", "pre", "ul", "li"}, m[1]) || strings.Contains(m[0], " ") {
			errs = append(errs, fmt.Errorf("the tag %s in the HTML", m[0]))
		}
	}
	if strings.Contains(html, "href") {
		errs = append(errs, errors.New("a link in the HTML"))
	}
	return errors.Join(errs...)
}
