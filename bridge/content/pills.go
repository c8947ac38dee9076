package content

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"maunium.net/go/mautrix/id"
)

// Pill is a link to a person in a message's HTML.
type Pill struct {
	User  id.UserID
	Label string // the text of the link
	// First tells that no text stands before it.
	First bool
	// Rest is the message's text after a pill that is First, for clients whose
	// plain body does not begin with the label.
	Rest string
}

// pills finds the links to people in formatted, and what they are called. It goes
// once over the tokens and keeps no tree.
func pills(formatted string) []Pill {
	if !strings.Contains(formatted, "<a") && !strings.Contains(formatted, "<A") {
		return nil
	}
	z := html.NewTokenizer(strings.NewReader(formatted))
	var s pillScan
	for {
		kind := z.Next()
		switch kind {
		case html.ErrorToken:
			return s.end()
		case html.TextToken:
			s.text(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			name, hasAttr := z.TagName()
			tag := string(name)
			user := id.UserID("")
			if tag == "a" && hasAttr {
				user = linkedUser(z)
			}
			s.open(tag, user)
		case html.EndTagToken:
			name, _ := z.TagName()
			s.close(string(name))
		default: // comments and document types say nothing
		}
	}
}

// pillScan is the state of one pass: inside a quotation or not, inside a pill or
// not, and the text after the first pill.
type pillScan struct {
	found  []Pill
	quoted int
	inside bool // in the pill that is last of found
	any    bool // some text was seen
	label  strings.Builder
	rest   strings.Builder
}

func (s *pillScan) text(t string) {
	if s.quoted > 0 {
		return
	}
	switch {
	case s.inside:
		s.label.WriteString(t)
	case len(s.found) > 0 && s.found[0].First:
		s.rest.WriteString(t)
	}
	if strings.TrimSpace(t) != "" {
		s.any = true
	}
}

func (s *pillScan) open(tag string, user id.UserID) {
	switch tag {
	case "mx-reply":
		s.quoted++
	case "br", "p", "div", "li":
		s.text("\n")
	case "a":
		s.finish()
		if s.quoted == 0 && user != "" && len(s.found) < maxPills {
			s.found = append(s.found, Pill{User: user, First: !s.any})
			s.inside = true
		}
	}
}

func (s *pillScan) close(tag string) {
	switch tag {
	case "mx-reply":
		s.quoted = max(0, s.quoted-1)
	case "a":
		s.finish()
	}
}

// finish ends the pill that is open, if one is.
func (s *pillScan) finish() {
	if !s.inside {
		return
	}
	label := s.label.String()
	s.label.Reset()
	s.inside, s.any = false, true
	last := len(s.found) - 1
	s.found[last].Label = strings.TrimSpace(label)
	if last > 0 && s.found[0].First {
		s.rest.WriteString(label)
	}
}

func (s *pillScan) end() []Pill {
	s.finish()
	if len(s.found) > 0 && s.found[0].First {
		s.found[0].Rest = strings.TrimSpace(s.rest.String())
	}
	return s.found
}

// linkedUser reads the attributes of an a tag and says whom it links to, or "".
func linkedUser(z *html.Tokenizer) id.UserID {
	var user id.UserID
	for {
		key, val, more := z.TagAttr()
		if user == "" && string(key) == "href" {
			user = UserOfLink(string(val))
		}
		if !more {
			return user
		}
	}
}

// UserOfLink says which person a link is to: https://matrix.to/#/@user:domain or
// matrix:u/user:domain, percent-encoded or not, with or without a query. Any
// other link is to nobody, "".
func UserOfLink(link string) id.UserID {
	if len(link) > 4*maxID {
		return ""
	}
	name := ""
	if rest, ok := cutFold(link, "https://matrix.to/#/"); ok {
		name = rest
	} else if rest, ok := cutFold(link, "http://matrix.to/#/"); ok {
		name = rest
	} else if rest, ok := cutFold(link, "matrix:u/"); ok {
		name = "@" + rest
	}
	if i := strings.IndexByte(name, '?'); i >= 0 {
		name = name[:i]
	}
	name, err := url.PathUnescape(name)
	if err != nil || !validID(name, '@') {
		return ""
	}
	return id.UserID(name)
}

// cutFold is strings.CutPrefix for an ASCII prefix, without regard to case.
func cutFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}
