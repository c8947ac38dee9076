package visible

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON lays out raw for a person: two spaces per level, keys in the order given,
// numbers exactly as written, and inside strings and keys the rule of [Text].
// Quotes, backslashes and line breaks inside a string keep their JSON escapes, so
// no string can look like the end of itself. What is not JSON, or nested more
// than 10,000 levels deep, is shown as [Lines] would. The limit works as in Text.
func JSON(raw []byte, limit int) string {
	if !json.Valid(raw) {
		return Lines(string(raw), limit)
	}
	p := printer{raw: raw, limit: limit}
	p.b.Grow(min(2*len(raw), max(limit, 0)) + 32)
	for p.pos < len(raw) {
		start := p.pos
		if !p.token() {
			if raw[start] != '"' { // only a string is shown in part
				p.pos = start
			}
			more(&p.b, len(raw)-p.pos)
			break
		}
	}
	return p.b.String()
}

// printer walks valid JSON token by token; it keeps a depth and no tree, so deep
// nesting costs nothing.
type printer struct {
	raw   []byte
	pos   int
	depth int
	limit int
	b     strings.Builder
}

// token prints the next token and moves past it. It is false when the limit is
// reached.
func (p *printer) token() bool {
	c := p.raw[p.pos]
	switch c {
	case ' ', '\t', '\n', '\r':
		p.pos++
		return true
	case '{', '[':
		p.pos++
		if p.closesNow() {
			return p.put(string(c) + string(p.raw[p.pos-1]))
		}
		p.depth++
		return p.put(string(c)) && p.newline()
	case '}', ']':
		p.pos++
		p.depth--
		return p.newline() && p.put(string(c))
	case ',':
		p.pos++
		return p.put(",") && p.newline()
	case ':':
		p.pos++
		return p.put(": ")
	case '"':
		return p.str()
	}
	start := p.pos
	for p.pos < len(p.raw) && !strings.ContainsRune(" \t\n\r,]}", rune(p.raw[p.pos])) {
		p.pos++
	}
	return p.put(string(p.raw[start:p.pos]))
}

// closesNow moves past the end of an empty object or array.
func (p *printer) closesNow() bool {
	for i := p.pos; i < len(p.raw); i++ {
		switch p.raw[i] {
		case ' ', '\t', '\n', '\r':
			continue
		case '}', ']':
			p.pos = i + 1
			return true
		}
		return false
	}
	return false
}

func (p *printer) put(s string) bool {
	if p.b.Len()+len(s) > p.limit {
		return false
	}
	p.b.WriteString(s)
	return true
}

func (p *printer) newline() bool {
	if p.b.Len()+1+2*p.depth > p.limit {
		return false
	}
	p.b.WriteByte('\n')
	for range p.depth {
		p.b.WriteString("  ")
	}
	return true
}

// str prints one string. When the limit falls inside it, what fits is printed and
// pos is left there, so that the count of bytes left out is right.
func (p *printer) str() bool {
	if !p.put(`"`) {
		return false
	}
	p.pos++
	marks := maxMarks
	var buf [16]byte
	for {
		piece, size := buf[:0], 1
		switch c := p.raw[p.pos]; {
		case c == '"':
			if !p.put(`"`) {
				return false
			}
			p.pos++
			return true
		case c == '\\':
			piece, size = appendEscape(piece, p.raw[p.pos:])
			marks = 0
		case c >= ' ' && c < 0x7f:
			piece, marks = append(piece, c), 0
		default:
			end := min(len(p.raw), p.pos+utf8.UTFMax)
			piece, size, marks = appendRune(piece, string(p.raw[p.pos:end]), marks)
		}
		if p.b.Len()+len(piece) > p.limit {
			return false
		}
		p.b.Write(piece)
		p.pos += size
	}
}

// appendEscape appends the visible form of the JSON escape s begins with. Escapes
// that say something by themselves stay; \uXXXX is read first, so that a hidden
// character cannot be told apart by how it was written.
func appendEscape(dst, s []byte) ([]byte, int) {
	if s[1] != 'u' {
		if s[1] == '/' {
			return append(dst, '/'), 2
		}
		return append(dst, s[:2]...), 2
	}
	r, size := escaped(s), 6
	if utf16.IsSurrogate(r) {
		pair := rune(utf8.RuneError)
		if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' {
			pair = utf16.DecodeRune(r, escaped(s[6:]))
		}
		if pair == utf8.RuneError {
			return appendCode(dst, r), size
		}
		r, size = pair, 12
	}
	switch r {
	case '"', '\\':
		return append(dst, '\\', byte(r)), size
	case '\b':
		return append(dst, `\b`...), size
	case '\f':
		return append(dst, `\f`...), size
	case '\n':
		return append(dst, `\n`...), size
	case '\r':
		return append(dst, `\r`...), size
	case '\t':
		return append(dst, `\t`...), size
	}
	if Hidden(r) {
		return appendCode(dst, r), size
	}
	out, _, _ := appendRune(dst, string(r), maxMarks)
	return out, size
}

// escaped reads \uXXXX.
func escaped(s []byte) rune {
	n, err := strconv.ParseUint(string(s[2:6]), 16, 16)
	if err != nil {
		return utf8.RuneError
	}
	return rune(n)
}
