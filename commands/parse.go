// Package commands is what a person can type to the bot: a parser, and a set of
// commands that are data.
//
// Everything parsed here was written by a stranger on a phone. Names are compared
// without regard to case, typographic quotes work like plain ones, and every error
// is one short sentence that can be posted in the room: what it repeats of the
// input has its hidden characters made visible and is short. Input above
// [MaxInput] is refused. Nothing panics; all parsing is pure and safe for
// concurrent use.
package commands

import (
	"fmt"
	"strings"
	"unicode"

	"moothall/internal/visible"
)

// MaxInput is the longest text that is parsed, in bytes; no room event holds more.
const MaxInput = 64 << 10

// maxCommand is the longest name of a command, in bytes.
const maxCommand = 64

// maxShown is how much of the input an error repeats, in bytes.
const maxShown = 64

// Line is a command as typed.
type Line struct {
	Name string // lower case, without the prefix
	Rest string // all after the name, without spaces around it
}

// InputError says what is wrong with something a person typed.
type InputError struct {
	// Say is one sentence for the room.
	Say string
	// Column is where in the text, counted in characters from 1; 0 where no one
	// place is to blame.
	Column int
}

// Error returns the sentence for the room.
func (e *InputError) Error() string { return e.Say }

func inputErrorf(column int, format string, args ...any) *InputError {
	return &InputError{Say: fmt.Sprintf(format, args...), Column: column}
}

// shown is a piece of the input as an error repeats it.
func shown(s string) string { return visible.Text(s, maxShown) }

// Parse recognises a command: the prefix, at once a name of a letter and then
// letters, digits, "_" or "-", then the end or any space. Everything else is
// talk, not a command: "!", "! name", "!!name", "!1", "!name?". An empty prefix
// means "!".
func Parse(text, prefix string) (Line, bool) {
	if prefix == "" {
		prefix = "!"
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ok {
		return Line{}, false
	}
	end := 0
	for end < len(rest) && nameByte(rest[end], end == 0) {
		end++
	}
	name, rest := rest[:end], rest[end:]
	if name == "" || len(name) > maxCommand {
		return Line{}, false
	}
	if rest != "" && strings.IndexFunc(rest, unicode.IsSpace) != 0 {
		return Line{}, false
	}
	return Line{Name: strings.ToLower(name), Rest: strings.TrimSpace(rest)}, true
}

func nameByte(c byte, first bool) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return true
	case c >= '0' && c <= '9', c == '_', c == '-':
		return !first
	}
	return false
}
