package demo_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"moothall/internal/demo"
	"moothall/internal/homeserver/homeservertest"
)

// The whole conversation, as `make demo` plays it.
func TestDemo(t *testing.T) {
	homeservertest.ForTest(t) // or skip
	saved := filepath.Join(t.TempDir(), "transcript.txt")
	err := demo.Run(t.Context(), demo.Options{TranscriptFile: saved, Out: t.Output(), Progress: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"!run room.topic.set", "reacts ✅", "reacts ❌"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the transcript lacks %q", want)
		}
	}
	readmeShows(t, string(b))
}

// readmeShows checks that what the README shows of the conversation is what
// happened, word for word.
func readmeShows(t *testing.T, transcript string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(readme), "```transcript\n")
	if !ok {
		t.Fatal("the README shows no transcript")
	}
	block, _, _ = strings.Cut(block, "```")
	// Whole steps: from a heading up to the next one.
	whole := strings.HasPrefix(block, "── ") && strings.Contains(transcript, strings.TrimRight(block, "\n")+"\n\n── ")
	for _, step := range []string{"own yes", "says no", "is killed", "Nobody answers"} {
		whole = whole && strings.Contains(block, step)
	}
	if !whole {
		t.Errorf("the README shows\n%s\nwhich is not in the conversation\n%s", block, transcript)
	}
}

func TestDemoRefusesAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := demo.Run(t.Context(), demo.Options{Dir: dir, Out: t.Output(), Progress: t.Output()})
	if err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("error %v; want one that says the folder is not empty", err)
	}
}
