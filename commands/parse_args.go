package commands

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxArgs is how many arguments one command takes.
const maxArgs = 256

// Arg is one argument.
type Arg struct {
	// Key is the name before "=", empty for a plain value. It may hold dots.
	Key   string
	Value string
	// Quoted tells that the value was written in quotes.
	Quoted bool
	// Column is where the argument starts, counted in characters from 1.
	Column int
}

// Args splits rest at spaces. Quotes keep a value together where they start it or
// follow "=": plain ones, and the typographic pairs that phones and languages
// make of them. Within double quotes a backslash makes the next quote or
// backslash literal, \n a line break and \t a tab. In single quotes a quote
// inside a word is an apostrophe. A value that starts with "{" or "[" goes on to
// the bracket that closes it. The only errors are *[InputError].
func Args(rest string) ([]Arg, error) {
	if len(rest) > MaxInput {
		return nil, inputErrorf(0, "that is too long: a command takes at most %d bytes", MaxInput)
	}
	s := scanner{in: rest, column: 1}
	var args []Arg
	for {
		s.skipSpace()
		if s.in == "" {
			return args, nil
		}
		if len(args) == maxArgs {
			return nil, inputErrorf(s.column, "that is more than %d arguments", maxArgs)
		}
		arg, err := s.arg()
		if err != nil {
			return nil, err
		}
		args = append(args, arg)
	}
}

// scanner is what is left of the input, and where it starts in the whole.
type scanner struct {
	in     string
	column int
	// unclosed tells that a bracket was seen which nothing closes: no other can
	// be tried, or a text of brackets would be read once for each.
	unclosed bool
}

// take moves n bytes on, which end at the end of a character.
func (s *scanner) take(n int) string {
	head := s.in[:n]
	s.column += utf8.RuneCountInString(head)
	s.in = s.in[n:]
	return head
}

func (s *scanner) skipSpace() {
	s.take(len(s.in) - len(strings.TrimLeftFunc(s.in, unicode.IsSpace)))
}

func (s *scanner) arg() (Arg, error) {
	arg := Arg{Column: s.column}
	if n := keyLength(s.in); n > 0 {
		arg.Key = s.take(n)
		s.take(len("="))
	}
	var err error
	arg.Value, arg.Quoted, err = s.value(arg.Key != "")
	return arg, err
}

// keyLength is the length of the name before a "=", 0 if s does not start so.
func keyLength(s string) int {
	for i := range len(s) {
		c := s[i]
		switch {
		case c == '=':
			return i
		case nameByte(c, i == 0), i == 0 && (c == '_' || c == '$'), i > 0 && (c == '.' || c == '$'):
		default:
			return 0
		}
	}
	return 0
}

func (s *scanner) value(keyed bool) (value string, quoted bool, err error) {
	r, _ := utf8.DecodeRuneInString(s.in)
	if q, ok := quoteOf(r); ok {
		value, err = s.quoted(q)
		return value, true, err
	}
	if keyed && (r == '{' || r == '[') && !s.unclosed {
		if n := bracketed(s.in); n > 0 {
			return s.take(n), false, nil
		}
		s.unclosed = true
	}
	n := strings.IndexFunc(s.in, unicode.IsSpace)
	if n < 0 {
		n = len(s.in)
	}
	return s.take(n), false, nil
}

// quote is one way of quoting.
type quote struct {
	closers string // each character of it closes
	single  bool   // may be an apostrophe, and knows no backslash
}

func quoteOf(opener rune) (quote, bool) {
	switch opener {
	case '"':
		return quote{closers: `"`}, true
	case '“':
		return quote{closers: "”"}, true
	case '”':
		return quote{closers: "”"}, true
	case '„':
		return quote{closers: "“”"}, true
	case '«':
		return quote{closers: "»"}, true
	case '»':
		return quote{closers: "«"}, true
	case '\'':
		return quote{closers: "'", single: true}, true
	case '‘', '’':
		return quote{closers: "’", single: true}, true
	case '‚':
		return quote{closers: "‘’", single: true}, true
	}
	return quote{}, false
}

// quoted reads a quoted value, the opening quote being next.
func (s *scanner) quoted(q quote) (string, error) {
	start := s.column
	_, size := utf8.DecodeRuneInString(s.in)
	var b strings.Builder
	for i := size; i < len(s.in); {
		r, size := utf8.DecodeRuneInString(s.in[i:])
		if r == '\\' && !q.single && i+1 < len(s.in) {
			text, n := unescape(s.in[i:], q)
			b.WriteString(text)
			i += n
			continue
		}
		if !strings.ContainsRune(q.closers, r) || r == utf8.RuneError {
			b.WriteString(s.in[i : i+size])
			i += size
			continue
		}
		after, _ := utf8.DecodeRuneInString(s.in[i+size:])
		if i+size == len(s.in) || unicode.IsSpace(after) {
			s.take(i + size)
			return b.String(), nil
		}
		if !q.single {
			s.take(i + size)
			return "", inputErrorf(s.column, "a space is missing after the closing quote, before column %d", s.column)
		}
		b.WriteString(s.in[i : i+size])
		i += size
	}
	return "", inputErrorf(start, "the quote that starts at column %d is never closed", start)
}

// unescape reads the backslash s starts with and what it stands for. One that
// stands for nothing special stays.
func unescape(s string, q quote) (text string, length int) {
	r, size := utf8.DecodeRuneInString(s[1:])
	switch {
	case r == 'n':
		return "\n", 2
	case r == 't':
		return "\t", 2
	case r == '\\' || r == '"' || r != utf8.RuneError && strings.ContainsRune(q.closers, r):
		return s[1 : 1+size], 1 + size
	}
	return s[:1+size], 1 + size
}

// bracketed is the length of the JSON object or array s starts with, up to the
// bracket that closes it and only if a space or the end follows; else 0.
func bracketed(s string) int {
	depth, inString := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			if depth--; depth > 0 {
				continue
			}
			r, _ := utf8.DecodeRuneInString(s[i+1:])
			if i+1 == len(s) || unicode.IsSpace(r) {
				return i + 1
			}
			return 0
		}
	}
	return 0
}
