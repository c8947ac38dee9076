package demo

import (
	"strings"
	"testing"
)

func TestWhatDiffersFromRunToRunIsReplaced(t *testing.T) {
	event := "$" + strings.Repeat("a-Z_0", 8) + "xyz"
	tests := []struct{ name, in, want string }{
		{"a time", "until 2026-11-30T16:00:01.5Z, that is 2026-11-30 16:00 UTC", "until <time>, that is <time>"},
		{"a time in words", "It is Monday, 30 November 2026, 16:08:51 UTC.", "It is <time>."},
		{"a time of day", "at 16:00:01 or 16:00 UTC", "at <time> or <time>"},
		{"what somebody wrote stays", `topic="Maintenance tonight at 22:00"`, `topic="Maintenance tonight at 22:00"`},
		{"an event", event + " and again " + event, "$event1 and again $event1"},
		{"a room", "!aBcDeFgHiJkLmNoPqR:hs.test", "!room1:hs.test"},
		{"a port", "http://127.0.0.1:29333/x", "http://127.0.0.1:<port>/x"},
		{"an approval", "!approve 3f9ac01b or !reject 3f9ac01b", "!approve <id1> or !reject <id1>"},
		{"a full approval", "apr_3f9ac01b-0000-4000-8000-000000000001", "<id1>"},
		{"a command's usage", "!approve ID [reason]", "!approve ID [reason]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := stable(tt.in); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
