package gate

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

// parser reads one JSON value strictly (RFC 8259, no repeated keys, no lone
// surrogates) into what the schema library takes: maps, slices, strings,
// [json.Number], bool and nil. It exists so that arguments are read once, for
// their bounds, their canonical form and their validation alike. The text must
// be valid UTF-8.
type parser struct {
	s        string
	at       int
	depth    int
	maxDepth int
	number   func(string) error // nil: any that fits a float64
}

// parse gives the tree of raw.
func parse(raw []byte, maxDepth int, number func(string) error) (any, error) {
	p := parser{s: string(raw), maxDepth: maxDepth, number: number}
	v, err := p.value()
	if err != nil {
		return nil, err
	}
	if p.space(); p.at != len(p.s) {
		return nil, errJSON
	}
	return v, nil
}

func (p *parser) space() {
	for p.at < len(p.s) {
		switch p.s[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// next gives the next byte that is no space, or 0 at the end.
func (p *parser) next() byte {
	p.space()
	if p.at == len(p.s) {
		return 0
	}
	return p.s[p.at]
}

func (p *parser) value() (any, error) {
	switch c := p.next(); {
	case c == '{':
		return p.object()
	case c == '[':
		return p.array()
	case c == '"':
		return p.text()
	case c == '-' || (c >= '0' && c <= '9'):
		return p.num()
	case strings.HasPrefix(p.s[p.at:], "true"):
		p.at += len("true")
		return true, nil
	case strings.HasPrefix(p.s[p.at:], "false"):
		p.at += len("false")
		return false, nil
	case strings.HasPrefix(p.s[p.at:], "null"):
		p.at += len("null")
		return nil, nil
	}
	return nil, errJSON
}

// open goes into an object or array, whose first byte it takes.
func (p *parser) open() error {
	if p.depth++; p.depth > p.maxDepth {
		return errTooDeep
	}
	p.at++
	return nil
}

// more reports whether another member follows; end closes what is open.
func (p *parser) more(end byte) (bool, error) {
	switch p.next() {
	case ',':
		p.at++
		return true, nil
	case end:
		p.at++
		p.depth--
		return false, nil
	}
	return false, errJSON
}

func (p *parser) object() (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	m := make(map[string]any)
	if p.next() == '}' {
		p.at++
		p.depth--
		return m, nil
	}
	for {
		if p.next() != '"' {
			return nil, errJSON
		}
		k, err := p.text()
		if err != nil {
			return nil, err
		}
		if _, twice := m[k]; twice || p.next() != ':' {
			return nil, errJSON
		}
		p.at++
		if m[k], err = p.value(); err != nil {
			return nil, err
		}
		if again, err := p.more('}'); err != nil || !again {
			return m, err
		}
	}
}

func (p *parser) array() (any, error) {
	if err := p.open(); err != nil {
		return nil, err
	}
	a := []any{}
	if p.next() == ']' {
		p.at++
		p.depth--
		return a, nil
	}
	for {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		a = append(a, v)
		if again, err := p.more(']'); err != nil || !again {
			return a, err
		}
	}
}

// text reads a string; at its opening quote.
func (p *parser) text() (string, error) {
	p.at++
	begin := p.at
	for p.at < len(p.s) {
		switch c := p.s[p.at]; {
		case c == '"':
			p.at++
			return p.s[begin : p.at-1], nil
		case c < ' ':
			return "", errJSON
		case c == '\\':
			return p.escaped(begin)
		}
		p.at++
	}
	return "", errJSON
}

// escaped reads on from the first backslash of a string.
func (p *parser) escaped(begin int) (string, error) {
	out := []byte(p.s[begin:p.at])
	for p.at < len(p.s) {
		c := p.s[p.at]
		p.at++
		switch {
		case c == '"':
			return string(out), nil
		case c < ' ':
			return "", errJSON
		case c != '\\':
			out = append(out, c)
			continue
		}
		if p.at == len(p.s) {
			return "", errJSON
		}
		c = p.s[p.at]
		p.at++
		if c == 'u' {
			r, err := p.unit()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		i := strings.IndexByte(`"\/bfnrt`, c)
		if i < 0 {
			return "", errJSON
		}
		out = append(out, "\"\\/\b\f\n\r\t"[i])
	}
	return "", errJSON
}

// unit reads the rest of \uXXXX, and the other half of a surrogate pair.
func (p *parser) unit() (rune, error) {
	r, err := p.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if !strings.HasPrefix(p.s[p.at:], `\u`) {
		return 0, errJSON
	}
	p.at += len(`\u`)
	low, err := p.hex()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, errJSON
	}
	return r, nil
}

func (p *parser) hex() (rune, error) {
	const digits = 4
	if len(p.s)-p.at < digits {
		return 0, errJSON
	}
	var r rune
	for range digits {
		c := p.s[p.at]
		p.at++
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, errJSON
		}
	}
	return r, nil
}

func (p *parser) digits() bool {
	begin := p.at
	for p.at < len(p.s) && p.s[p.at] >= '0' && p.s[p.at] <= '9' {
		p.at++
	}
	return p.at > begin
}

// num reads a number and gives it in its canonical form.
func (p *parser) num() (any, error) {
	begin := p.at
	if p.s[p.at] == '-' {
		p.at++
	}
	if p.at < len(p.s) && p.s[p.at] == '0' {
		p.at++
	} else if !p.digits() {
		return nil, errJSON
	}
	whole := true
	if p.at < len(p.s) && p.s[p.at] == '.' {
		p.at++
		whole = false
		if !p.digits() {
			return nil, errJSON
		}
	}
	if p.at < len(p.s) && (p.s[p.at] == 'e' || p.s[p.at] == 'E') {
		p.at++
		whole = false
		if p.at < len(p.s) && (p.s[p.at] == '+' || p.s[p.at] == '-') {
			p.at++
		}
		if !p.digits() {
			return nil, errJSON
		}
	}
	return canonicalNumber(p.s[begin:p.at], whole, p.number)
}

// shortInteger is how many characters an integer may have that is surely exact.
const shortInteger = 15

func canonicalNumber(n string, whole bool, allowed func(string) error) (any, error) {
	if whole && len(n) <= shortInteger && n != "-0" {
		return json.Number(n), nil
	}
	if allowed != nil {
		if err := allowed(n); err != nil {
			return nil, err
		}
	}
	f, err := strconv.ParseFloat(n, 64)
	if err != nil {
		return nil, errJSON
	}
	s, err := jcs.NumberToJSON(f)
	if err != nil {
		return nil, errJSON
	}
	return json.Number(s), nil
}

// write appends the RFC 8785 form of a tree that parse gave.
func write(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case json.Number:
		return append(b, v...)
	case string:
		return quote(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = write(b, e)
		}
		return append(b, ']')
	case map[string]any:
		var few [8]string
		keys := few[:0]
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, byUnits)
		b = append(b, '{')
		for i, k := range keys {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(quote(b, k), ':')
			b = write(b, v[k])
		}
		return append(b, '}')
	}
	panic("gate: a tree with a value that parse does not make")
}

// byUnits orders strings by UTF-16 code units. That is the order of their bytes,
// except where one has a character beyond U+FFFF and the other one from U+E000.
func byUnits(a, b string) int {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		const surrogates, private = 0xF0, 0xEE // first bytes from U+10000, and from U+E000
		if hi, lo := max(a[i], b[i]), min(a[i], b[i]); hi >= surrogates && lo >= private && lo < surrogates {
			return -strings.Compare(a, b)
		}
		break
	}
	return strings.Compare(a, b)
}

const lowerHex = "0123456789abcdef"

func quote(b []byte, s string) []byte {
	b = append(b, '"')
	begin := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[begin:i]...)
		begin = i + 1
		if j := strings.IndexByte("\"\\\b\f\n\r\t", c); j >= 0 {
			b = append(b, '\\', `"\bfnrt`[j])
			continue
		}
		b = append(b, `\u00`...)
		b = append(b, lowerHex[c>>4], lowerHex[c&0xf])
	}
	b = append(b, s[begin:]...)
	return append(b, '"')
}
