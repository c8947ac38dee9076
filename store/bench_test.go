package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"moothall/bridge/queue"
)

// BenchmarkAccept is the hot path: one event per transaction, then 200.
func BenchmarkAccept(b *testing.B) {
	s, err := Open(b.Context(), Config{Path: filepath.Join(b.TempDir(), "moothall.db")})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	r, i := s.Rows(), 0
	body := []byte(`{"body":"` + strings.Repeat("a", 1100) + `"}`)
	for b.Loop() {
		i++
		_, err := r.Accept(b.Context(), []queue.Event{{
			ID: fmt.Sprintf("$%d", i), Room: "!hall:example.org", Sender: "@alice:example.org", Type: "m.room.message", Body: body,
		}}, nil, s.cfg.Now())
		if err != nil {
			b.Fatal(err)
		}
	}
}
