// Package visible makes hidden characters visible, so that what a person reads
// on an approval card is what will run.
//
// A character that shows nothing, moves other text about, or looks like a plain
// space becomes its code point in angle brackets: ⟨U+202E⟩. A byte that is not
// UTF-8 becomes ⟨0xFF⟩. The opening bracket ⟨ itself is written ⟨U+27E8⟩, so a
// reader can tell a hidden character from somebody who typed its name. Printable
// ASCII is never changed, and every result is valid UTF-8.
//
// The package has no state: all functions are safe for concurrent use, never
// panic, and stop reading once their limit is reached.
package visible

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMarks is how many combining marks may follow each other before the rest
// are written out: a tall stack of them covers the lines above.
const maxMarks = 8

// opening is the bracket that starts a written-out character.
const opening = '⟨'

// Text returns s on one line with every hidden character written out, line
// breaks and tabs included. At most limit bytes of text are returned, cut between
// characters; what is left out is counted as "…(N more bytes)", N being bytes of
// s. A limit of zero or less shows only that count.
func Text(s string, limit int) string {
	return show(s, limit, false)
}

// Lines is [Text] that keeps plain line feeds and tabs as they are.
func Lines(s string, limit int) string {
	return show(s, limit, true)
}

// Hidden reports whether r is written out by [Text].
func Hidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	switch {
	case r == opening,
		r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef, // variation selectors
		r >= 0x180b && r <= 0x180f,                         // Mongolian ones
		r == 0x034f,                                        // combining grapheme joiner
		r == 0x115f, r == 0x1160, r == 0x3164, r == 0xffa0, // Hangul fillers
		r == 0x17b4, r == 0x17b5, // Khmer vowels that show nothing
		r == 0x2800,  // braille pattern without dots
		r == 0x16fe4, // Khitan filler
		r == 0x1d159, // musical symbol without a head
		r >= 0x13430 && r <= 0x13446 && !unicode.IsPrint(r), // hieroglyph joiners
		r == 0x13441, r == 0x13442, r == 0xfffc, r == 0x1d17a: // blanks
		return true
	}
	// IsPrint holds for letters, marks, numbers, punctuation and symbols. What it
	// leaves out is controls, formats (bidirectional, zero width, tags), other
	// spaces, separators, surrogates, private use and unassigned.
	return !unicode.IsPrint(r)
}

func show(s string, limit int, lines bool) string {
	var b strings.Builder
	b.Grow(min(len(s), max(limit, 0)) + 32)
	marks := maxMarks // a mark with nothing before it would sit on our own text
	var buf [16]byte
	for i := 0; i < len(s); {
		piece, size := buf[:0], 1
		if c := s[i]; c >= ' ' && c < 0x7f || lines && (c == '\n' || c == '\t') {
			piece, marks = append(piece, c), 0
			if c == '\n' {
				marks = maxMarks
			}
		} else {
			piece, size, marks = appendRune(piece, s[i:], marks)
		}
		if b.Len()+len(piece) > limit {
			more(&b, len(s)-i)
			return b.String()
		}
		b.Write(piece)
		i += size
	}
	return b.String()
}

// appendRune appends the visible form of the first character of s, says how many
// bytes of s that was and how many combining marks now stand in a row.
func appendRune(dst []byte, s string, marks int) ([]byte, int, int) {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size == 1:
		return appendByte(dst, s[0]), 1, 0
	case Hidden(r):
		return appendCode(dst, r), size, 0
	case unicode.Is(unicode.M, r):
		if marks >= maxMarks {
			return appendCode(dst, r), size, marks
		}
		return append(dst, s[:size]...), size, marks + 1
	}
	return append(dst, s[:size]...), size, 0
}

const hex = "0123456789ABCDEF"

// appendCode appends ⟨U+XXXX⟩, with as many digits as Unicode writes.
func appendCode(dst []byte, r rune) []byte {
	dst = append(dst, "⟨U+"...)
	digits := 4
	for digits < 6 && r>>(4*digits) != 0 {
		digits++
	}
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, hex[(r>>(4*i))&0xf])
	}
	return append(dst, "⟩"...)
}

// appendByte appends ⟨0xXX⟩, for a byte that is part of no character.
func appendByte(dst []byte, c byte) []byte {
	dst = append(dst, "⟨0x"...)
	dst = append(dst, hex[c>>4], hex[c&0xf])
	return append(dst, "⟩"...)
}

func more(b *strings.Builder, n int) {
	b.WriteString("…(")
	b.WriteString(strconv.Itoa(n))
	b.WriteString(" more bytes)")
}
