package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// minToken is the fewest characters of a token; init makes 64.
const minToken = 32

// kind names the key's type for people.
func (k *key) kind() string {
	switch k.into(&Config{}).(type) {
	case *Secret:
		return "secret"
	case *int64:
		return "number"
	case *time.Duration, *Expiry:
		return "duration"
	case *[]string:
		return "list"
	default:
		return "text"
	}
}

func (k *key) secret() bool { return k.kind() == "secret" }

// put checks texts (one text, or the items of a list) and stores them in c. It
// returns what is wrong, or "". dir is the folder relative paths start from.
func (k *key) put(c *Config, texts []string, dir string) string {
	switch p := k.into(c).(type) {
	case *[]string:
		return k.putList(p, texts)
	case *int64:
		n, err := strconv.ParseInt(texts[0], 10, 64)
		if err != nil {
			return "must be a whole number"
		}
		if problem := k.verify(texts[0]); problem != "" {
			return problem
		}
		*p = n
	case *time.Duration:
		return putDuration(p, texts[0])
	case *Expiry:
		if texts[0] == "never" {
			*p = Expiry{Never: true}
			return ""
		}
		if problem := putDuration(&p.After, texts[0]); problem != "" {
			return problem + ", or the word never"
		}
	case *string:
		if problem := k.verify(texts[0]); problem != "" {
			return problem
		}
		*p = texts[0]
		if k.path && *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
		if strings.HasSuffix(k.name, ".address") || strings.HasSuffix(k.name, ".url") {
			*p = strings.TrimRight(*p, "/")
		}
	case *Secret:
		if problem := k.verify(texts[0]); problem != "" {
			return problem
		}
		*p = Secret(texts[0])
	}
	return ""
}

// verify checks one text.
func (k *key) verify(s string) string {
	switch {
	case s == "" && k.maybeEmpty:
		return ""
	case s == "":
		return "must not be empty"
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return "must be UTF-8 text without NUL"
	case k.check == nil:
		return ""
	}
	return k.check(s)
}

func (k *key) putList(p *[]string, items []string) string {
	if len(items) == 0 {
		return "needs at least one entry"
	}
	for _, s := range items {
		if problem := k.verify(s); problem != "" {
			return "each entry " + problem
		}
	}
	*p = slices.Clone(items)
	return ""
}

func putDuration(p *time.Duration, s string) string {
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return "must be a duration above zero with its unit, like 30s or 24h"
	}
	*p = d
	return ""
}

func oneOf(words ...string) func(string) string {
	return func(s string) string {
		if slices.Contains(words, s) {
			return ""
		}
		return "must be one of " + strings.Join(words, ", ")
	}
}

func between(low, high int64) func(string) string {
	return func(s string) string {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < low || n > high {
			return fmt.Sprintf("must be a whole number from %d to %d", low, high)
		}
		return ""
	}
}

func checkURL(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		return "must be a URL that begins with https:// or http://"
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(s, "?# ") {
		return "must be a plain base URL: no user, no query, no fragment"
	}
	if p := u.Port(); (p != "" && !isPort(p)) || strings.HasSuffix(u.Host, ":") {
		return "has a port that is not a number from 1 to 65535"
	}
	return ""
}

// checkDomain accepts a server name of the Matrix specification in lower case:
// a DNS name, an IPv4 address or an IPv6 address in brackets, then perhaps a port.
func checkDomain(s string) string {
	if strings.Contains(s, "/") {
		return "must be the server name alone, like example.org, not a URL"
	}
	if strings.ContainsAny(s, "@!#") {
		return "must be the server name alone: what stands after the colon of a Matrix ID"
	}
	if strings.ToLower(s) != s {
		return "must be in lower case"
	}
	host, port := s, ""
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, ']') {
		host, port = s[:i], s[i+1:]
		if !isPort(port) {
			return "has a port that is not a number from 1 to 65535"
		}
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(inner); !closed || err != nil || !a.Is6() || a.Zone() != "" {
			return "has brackets without an IPv6 address in them"
		}
		return ""
	}
	if len(host) > 230 || !regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`).MatchString(host) || strings.Contains(host, "..") {
		return "must be a server name like example.org or example.org:8448"
	}
	return ""
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0 && s[0] != '+' && len(s) <= 5
}

func checkLocalpart(s string) string {
	if strings.ContainsAny(s, "@:") {
		return "must be the localpart alone, like moothall, without @ and without the domain"
	}
	if !regexp.MustCompile(`^[a-z0-9._=/+-]+$`).MatchString(s) {
		return "may only hold a-z, 0-9 and . _ = - / +"
	}
	return ""
}

func checkID(s string) string {
	if !regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`).MatchString(s) {
		return "may only hold letters, digits and . _ - (at most 64)"
	}
	return ""
}

func checkListen(s string) string {
	_, port, err := net.SplitHostPort(s)
	if err != nil || (port != "0" && !isPort(port)) {
		return "must be host:port, like 127.0.0.1:29333"
	}
	return ""
}

func checkToken(s string) string {
	if len(s) < minToken {
		return fmt.Sprintf("must have at least %d characters: moothall init makes good ones", minToken)
	}
	if len(s) > 512 || !regexp.MustCompile(`^[A-Za-z0-9._~+/=-]+$`).MatchString(s) {
		return "may only hold letters, digits and . _ ~ + / = - (at most 512)"
	}
	return ""
}

func checkDatabaseURI(s string) string {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return "must begin with postgres:// (and its special characters be percent-encoded)"
	}
	return ""
}

func checkAvatar(s string) string {
	if !regexp.MustCompile(`^mxc://[A-Za-z0-9.:\[\]-]+/[A-Za-z0-9_-]+$`).MatchString(s) {
		return "must be an mxc://server/id URI, or empty"
	}
	return ""
}

func checkPrefix(s string) string {
	if len(s) > 16 || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return "must be at most 16 bytes without spaces"
	}
	return ""
}

func checkLine(s string) string {
	if len(s) > 256 || strings.ContainsFunc(s, unicode.IsControl) || strings.TrimSpace(s) == "" {
		return "must be one line of at most 256 bytes"
	}
	return ""
}

// checkTogether finds what is wrong between keys that are right one by one.
func (l *loader) checkTogether(c *Config) {
	if c.AppService.ASToken == c.AppService.HSToken {
		l.report("appservice.hs_token", "must differ from as_token")
	}
	if c.Database.Type == Postgres && c.Database.URI == "" {
		l.report("database.uri", "is required when database.type is postgres")
	}
	if c.Database.Type == SQLite && c.Database.URI != "" {
		l.report("database.uri", "is only for database.type postgres: set the type, or remove it")
	}
	if c.Admin.Listen == c.AppService.Listen && !strings.HasSuffix(c.Admin.Listen, ":0") {
		l.report("admin.listen", "must differ from appservice.listen")
	}
	if len(c.BotID()) > 255 {
		l.report("appservice.bot.localpart", "makes a Matrix ID of more than 255 bytes")
	}
	for _, a := range c.Approvals.Approve {
		if slices.ContainsFunc(c.Approvals.Reject, func(r string) bool { return sameMark(a, r) }) {
			l.report("approvals.reject", "shares an entry with approvals.approve: one mark cannot mean both")
			break
		}
	}
}

// sameMark compares reactions as they will be compared in a room: without
// variation selectors and skin tones, in any case.
func sameMark(a, b string) bool {
	strip := func(r rune) rune {
		if r == 0xFE0E || r == 0xFE0F || (r >= 0x1F3FB && r <= 0x1F3FF) {
			return -1
		}
		return r
	}
	return strings.EqualFold(strings.TrimSpace(strings.Map(strip, a)), strings.TrimSpace(strings.Map(strip, b)))
}
