package demo

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// transcript is what a person reads of the conversation. Lines go out at once
// and are kept for [transcript.save]. It belongs to one goroutine.
type transcript struct {
	out  io.Writer
	text strings.Builder
}

const (
	indent    = "    "
	nameWidth = 10
)

// line adds text at a depth of the conversation: 0 for the room, 1 for a thread.
func (t *transcript) line(depth int, text string) {
	margin := strings.Repeat(indent, depth)
	text = strings.TrimRight(margin+strings.ReplaceAll(text, "\n", "\n"+margin), " ") + "\n"
	t.text.WriteString(text)
	_, _ = io.WriteString(t.out, text) // only news
}

func (t *transcript) blank() { t.line(0, "") }

// title begins a step.
func (t *transcript) title(text string) {
	t.blank()
	t.line(0, "── "+text+" ──")
}

// says adds what somebody wrote, which may have several lines.
func (t *transcript) says(depth int, who, text string) {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	t.line(depth, fmt.Sprintf("%-*s%s", nameWidth, who, lines[0]))
	for _, l := range lines[1:] {
		t.line(depth, strings.Repeat(" ", nameWidth)+l)
	}
}

// save writes the transcript as it looks in every run.
func (t *transcript) save(path string) error {
	if err := os.WriteFile(path, []byte(stable(strings.TrimLeft(t.text.String(), "\n"))), 0o644); err != nil { //nolint:gosec // for everybody to read
		return fmt.Errorf("save transcript: %w", err)
	}
	return nil
}

// stable replaces everything that differs from run to run. Ids of one kind are
// numbered as they come, so that the same id stays recognisable.
func stable(text string) string {
	for _, r := range []struct{ pattern, with string }{
		{`\b([A-Z][a-z]+day, )?\d{1,2} [A-Z][a-z]+ \d{4}(,? \d\d:\d\d(:\d\d)?( UTC)?)?`, "<time>"},
		{`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?`, "<time>"},
		{`\b\d\d:\d\d(:\d\d(\.\d+)?( ?UTC)?| UTC)`, "<time>"},
		{`127\.0\.0\.1:\d+`, "127.0.0.1:<port>"},
	} {
		text = regexp.MustCompile(r.pattern).ReplaceAllString(text, r.with)
	}
	text = number(text, `\$[A-Za-z0-9_-]{43}`, "$event", nil)
	text = number(text, `![A-Za-z0-9]{18}:`, "!room", func(id string) string { return id[:len(id)-1] })
	// An approval is named in full, or by the beginning of its id in the commands
	// that decide it; the same word elsewhere is the same approval.
	text = number(text, `\b(?:apr|exe)_[0-9a-f]{8}-[0-9a-f-]{27}`, "<id", nil)
	return number(text, `!(?:approve|reject|cancel|settle) ([0-9a-f]{4,36})\b`, "<id", nil)
}

// number replaces each distinct match (its first group, if the pattern has one)
// by name and a number, wherever it occurs. A name that opens a bracket gets it
// closed. trim says which part of a match to replace; nil means all.
func number(text, pattern, name string, trim func(string) string) string {
	closing := ""
	if strings.HasPrefix(name, "<") {
		closing = ">"
	}
	seen := map[string]bool{}
	var pairs []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		id := m[len(m)-1]
		if trim != nil {
			id = trim(id)
		}
		if !seen[id] {
			seen[id] = true
			pairs = append(pairs, id, name+strconv.Itoa(len(seen))+closing)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
