package config

import (
	"errors"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
)

// Problem is one fault of a configuration or registration. No field ever holds
// a value that was read, only names.
type Problem struct {
	File string // as given; or "environment"
	Line int    // from 1; 0 when the fault has no line
	Key  string // dotted name, or the environment variable; empty when the file as a whole is meant
	Text string // what is wrong and what would be right
}

// String is "file:line: key: problem", without the parts that are unknown.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		b.WriteString(":" + strconv.Itoa(p.Line))
	}
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	b.WriteString(": " + p.Text)
	return b.String()
}

// Error is everything that is wrong with a configuration, at once: the file's
// faults in the order of its lines, then the environment's.
type Error struct {
	Problems []Problem // never empty
}

// Error lists all problems, one a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

const absent = "no such file: moothall init makes one"

var (
	errTooLarge = errors.New("larger than 1 MiB")
	errIsFolder = errors.New("is a folder, not a file")
)

// cause is why a file could not be read, without its path.
func cause(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return absent
	}
	if errors.Is(err, fs.ErrPermission) {
		return "may not be read by this user"
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return "cannot be read: " + pe.Err.Error()
	}
	return "cannot be read: " + err.Error()
}

// name gives a key as it may be shown. What does not look like a key name may
// be a token that lost its colon, so it is not repeated; tokens have at least
// minToken characters and a database URI has colons and slashes.
func name(prefix, key string) string {
	if !isName(key) {
		key = "(unreadable name)"
	}
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

func isName(s string) bool {
	return len(s) < minToken && nameGrammar().MatchString(s)
}

func nameGrammar() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]+$`) }

// nearest is the candidate most like s, or "" if none is close.
func nearest(s string, candidates []string) string {
	best, limit := "", 1+len(s)/4
	for _, c := range candidates {
		if d := distance(s, c); d <= limit {
			best, limit = c, d-1
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
