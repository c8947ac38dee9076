package content

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"maunium.net/go/mautrix/id"
)

// IsMentioned reports whether msg speaks to the bot: by m.mentions, by a pill, or
// by name at the start ("moothall: …", "@moothall …", the full Matrix ID or the
// display name). Where a client sent no m.mentions at all, the bot's localpart as
// a whole word anywhere counts too, as it did before that key existed. Names are
// compared without regard to case.
func IsMentioned(msg *Message, bot id.UserID, displayName string) bool {
	if slices.Contains(msg.Mentioned, bot) {
		return true
	}
	if slices.ContainsFunc(msg.Pills, func(p Pill) bool { return p.User == bot }) {
		return true
	}
	if _, ok := cutName(msg.Body, bot, displayName); ok {
		return true
	}
	return !msg.HasMentions && hasWord(msg.Body, localpart(bot), bot)
}

// StripMention returns the text of msg without a mention of the bot at its start,
// and without the colon or comma after it: "moothall: !ping" gives "!ping". Text
// that does not start so comes back trimmed of spaces around it, else unchanged.
func StripMention(msg *Message, bot id.UserID, displayName string) string {
	body := strings.TrimSpace(msg.Body)
	if len(msg.Pills) > 0 && msg.Pills[0].First && msg.Pills[0].User == bot {
		return separated(afterPill(body, msg.Pills[0], bot, displayName))
	}
	if rest, ok := cutName(body, bot, displayName); ok {
		return separated(rest)
	}
	return body
}

// afterPill removes a leading pill from the plain body: its label, or the ID or
// name of the bot. A body that writes the pill as a Markdown link, or not at all,
// is replaced by the text of the HTML.
func afterPill(body string, pill Pill, bot id.UserID, displayName string) string {
	rest, ok := cutWord(body, pill.Label)
	if !ok {
		rest, ok = cutName(body, bot, displayName)
	}
	if !ok || strings.HasPrefix(rest, "(") {
		return pill.Rest
	}
	return rest
}

func localpart(user id.UserID) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(string(user), "@"), ":")
	return name
}

// cutName removes the bot's name from the start of body.
func cutName(body string, bot id.UserID, displayName string) (string, bool) {
	body = strings.TrimSpace(body)
	if rest, ok := cutWord(body, string(bot)); ok && !longerServer(rest) {
		return rest, true
	}
	bare, at := strings.CutPrefix(body, "@")
	names := []string{strings.TrimPrefix(strings.TrimSpace(displayName), "@"), localpart(bot)}
	for _, name := range names {
		for _, form := range []string{name, "[" + name + "]"} {
			rest, ok := cutWord(bare, form)
			if !ok || name == "" {
				continue
			}
			if at && otherServer(rest) {
				continue // @moothall:elsewhere.example is somebody else
			}
			return rest, true
		}
	}
	return body, false
}

// otherServer reports whether rest goes on as a Matrix ID does: a colon and, with
// no space, a server name.
func otherServer(rest string) bool {
	after, ok := strings.CutPrefix(rest, ":")
	if !ok {
		return false
	}
	r, _ := utf8.DecodeRuneInString(after)
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '['
}

// longerServer reports whether rest goes on as a server name does: a dot or a
// port with no space before what follows.
func longerServer(rest string) bool {
	if next, ok := strings.CutPrefix(rest, "."); ok {
		r, _ := utf8.DecodeRuneInString(next)
		return next != "" && wordRune(r)
	}
	next, ok := strings.CutPrefix(rest, ":")
	return ok && next != "" && next[0] >= '0' && next[0] <= '9'
}

// cutWord removes word from the start of s if it ends there.
func cutWord(s, word string) (string, bool) {
	if word == "" {
		return s, false
	}
	rest, ok := foldPrefix(s, word)
	if !ok {
		return s, false
	}
	if r, _ := utf8.DecodeRuneInString(rest); rest != "" && wordRune(r) {
		return s, false
	}
	return rest, true
}

// foldPrefix removes prefix from the start of s, without regard to case.
func foldPrefix(s, prefix string) (string, bool) {
	for _, want := range prefix {
		got, size := utf8.DecodeRuneInString(s)
		if size == 0 || got != want && unicode.ToLower(got) != unicode.ToLower(want) {
			return s, false
		}
		s = s[size:]
	}
	return s, true
}

func wordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '_' || r == '-'
}

// separated removes what stands between a name and the text spoken to it.
func separated(rest string) string {
	rest = strings.TrimSpace(rest)
	if strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, ",") || strings.HasPrefix(rest, ";") {
		rest = strings.TrimSpace(rest[1:])
	}
	return rest
}

// hasWord reports whether word stands in s by itself: not in a longer word, an
// address, a path, or another server's Matrix ID.
func hasWord(s, word string, bot id.UserID) bool {
	if word == "" {
		return false
	}
	prev := ' '
	for i, r := range s {
		if !wordRune(prev) && !strings.ContainsRune("#/!$.:=", prev) && unicode.ToLower(r) == unicode.ToLower(firstRune(word)) {
			if rest, ok := cutWord(s[i:], word); ok && standsAlone(rest, prev == '@', bot) {
				return true
			}
		}
		prev = r
	}
	return false
}

func standsAlone(rest string, at bool, bot id.UserID) bool {
	if at && otherServer(rest) {
		_, server, _ := strings.Cut(string(bot), ":")
		after, ok := cutWord(rest[1:], server)
		return ok && !longerServer(after)
	}
	return !longerServer(rest) && !strings.HasPrefix(rest, "@") && !strings.HasPrefix(rest, "/")
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}
