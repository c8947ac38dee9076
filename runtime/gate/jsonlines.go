package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

// JSONLines is a sink that writes each event as one line of JSON, in one call of
// w.Write. Characters are as they are, not escaped for HTML. It is a [BatchSink],
// and a [Flusher] that calls w's own Flush, if it has one. After a failed write a
// line may be cut off; the next begins on a line of its own.
func JSONLines(w io.Writer) Sink { return &jsonLines{w: w} }

type jsonLines struct {
	mu   sync.Mutex
	w    io.Writer
	torn bool // the last write failed part of the way
}

// Write implements [Sink].
func (j *jsonLines) Write(ctx context.Context, ev Event) error {
	return j.WriteBatch(ctx, []Event{ev})
}

// WriteBatch implements [BatchSink].
func (j *jsonLines) WriteBatch(_ context.Context, evs []Event) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	for _, ev := range evs {
		if err := enc.Encode(ev); err != nil {
			return fmt.Errorf("encode event: %w", err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	out := buf.Bytes()
	if j.torn {
		out = append([]byte{'\n'}, out...)
	}
	n, err := j.w.Write(out)
	if err != nil {
		j.torn = j.torn || n > 0
		return fmt.Errorf("write event: %w", err)
	}
	j.torn = false
	return nil
}

// Flush implements [Flusher].
func (j *jsonLines) Flush(context.Context) error {
	f, ok := j.w.(interface{ Flush() error })
	if !ok {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return f.Flush()
}
