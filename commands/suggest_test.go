package commands_test

import (
	"testing"

	"moothall/commands"
)

func TestNearest(t *testing.T) {
	known := []string{"help", "tools", "run", "approve", "approvals", "reject", "cancel", "settle", "ping", "room.topic.set", "room.invite"}
	tests := []struct{ in, want string }{
		{"hlep", "help"},
		{"pign", "ping"},
		{"rnu", "run"},
		{"aprove", "approve"},
		{"Approve", "approve"},
		{"approvlas", "approvals"},
		{"cancle", "cancel"},
		{"room.topic", "room.topic.set"},
		{"topic.set", "room.topic.set"},
		{"room.topik.set", "room.topic.set"},
		{"room", ""}, // two begin with it
		{"x", ""},
		{"", ""},
		{"weather", ""},
	}
	for _, tt := range tests {
		got, ok := commands.Nearest(tt.in, known)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%q: got %q, %v; want %q", tt.in, got, ok, tt.want)
		}
	}
}

func FuzzNearest(f *testing.F) {
	f.Add("topc", "topic")
	f.Add("", "")
	f.Add("é\xff", "e")
	f.Fuzz(func(t *testing.T, name, known string) {
		if got, ok := commands.Nearest(name, []string{known}); ok && got != known {
			t.Fatalf("%q is not known", got)
		}
	})
}
