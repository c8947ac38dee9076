package content

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Key returns the form of a reaction key that is compared: spaces around it,
// variation selectors and skin tones removed, words in lower case and composed
// form. A key that is empty, not UTF-8 or longer than [MaxKey] bytes gives "",
// which matches nothing.
func Key(s string) string {
	if len(s) > MaxKey || !utf8.ValidString(s) {
		return ""
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 0xfe00 && r <= 0xfe0f, r >= 0xe0100 && r <= 0xe01ef, // variation selectors
			r >= 0x1f3fb && r <= 0x1f3ff: // skin tones
			return -1
		}
		return r
	}, s)
	s = strings.TrimSpace(norm.NFC.String(strings.ToLower(norm.NFC.String(s))))
	if len(s) > MaxKey {
		return ""
	}
	return s
}

// Choice reads a numbered reaction, 1️⃣ to 9️⃣ with or without the variation
// selector; 🔟 is ten. Anything else is 0.
func Choice(key string) int {
	k := Key(key)
	if k == "\U0001f51f" {
		return 10
	}
	if len(k) == 1+len("\u20e3") && k[0] >= '1' && k[0] <= '9' && k[1:] == "\u20e3" {
		return int(k[0] - '0')
	}
	return 0
}

// Verdict is what a reaction says to an approval card.
type Verdict int

// The verdicts. The zero value says nothing.
const (
	None Verdict = iota
	Approve
	Reject
)

// String names the verdict for logs.
func (v Verdict) String() string {
	switch v {
	case Approve:
		return "approve"
	case Reject:
		return "reject"
	default:
		return "none"
	}
}

// KeySet knows which reaction keys mean yes and which mean no. The zero value
// knows none, so that nothing decides. It is immutable.
type KeySet struct {
	means map[string]Verdict
}

// DefaultApprove are the keys that mean yes unless the operator says otherwise.
// The first is the one the bot offers on a card.
func DefaultApprove() []string { return []string{"✅", "👍", "approve", "yes"} }

// DefaultReject are the keys that mean no, as [DefaultApprove].
func DefaultReject() []string { return []string{"❌", "👎", "reject", "no"} }

// NewKeySet makes a set of the configured keys. It refuses a key that is empty or
// too long, and one that would mean both.
func NewKeySet(approve, reject []string) (KeySet, error) {
	set := KeySet{means: make(map[string]Verdict, len(approve)+len(reject))}
	add := func(keys []string, v Verdict) error {
		for _, key := range keys {
			k := Key(key)
			if k == "" {
				return fmt.Errorf("reaction key %q to %v: it must be 1 to %d bytes of text", clip(key, 32), v, MaxKey)
			}
			if was, ok := set.means[k]; ok && was != v {
				return fmt.Errorf("reaction key %q cannot mean both yes and no", clip(key, 32))
			}
			set.means[k] = v
		}
		return nil
	}
	if err := add(approve, Approve); err != nil {
		return KeySet{}, err
	}
	if err := add(reject, Reject); err != nil {
		return KeySet{}, err
	}
	return set, nil
}

// Verdict says what key, as sent, means.
func (s KeySet) Verdict(key string) Verdict {
	k := Key(key)
	if k == "" {
		return None
	}
	return s.means[k]
}
