package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"moothall/bench/baseline"
	"moothall/bridge"
	"moothall/store"
)

// What one round stores.
const (
	singles   = 1500 // transactions of one event
	hundreds  = 60   // transactions of a hundred
	rooms     = 20
	bodyBytes = 800
	token     = "bench-token-bench-token-bench-token-bench-token-bench-token-1234"
)

// intake compares events stored per second: the product over real HTTP from one
// client, as homeservers send (one transaction at a time), against the bare
// inserts of the same rows.
func intake(ctx context.Context, out io.Writer, rounds int) error {
	_, _ = fmt.Fprintf(out, "Intake, events per second (higher is better)\n\n| events per transaction | round | baseline | intake | ratio |\n|---|---|---|---|---|\n")
	for _, size := range []int{1, 100} {
		var ratios []float64
		for round := 1; round <= rounds; round++ {
			base, got, err := intakeRound(ctx, round, size)
			if err != nil {
				return err
			}
			ratios = append(ratios, got/base)
			_, _ = fmt.Fprintf(out, "| %d | %d | %.0f | %.0f | %.2f |\n", size, round, base, got, got/base)
		}
		m, w := spread(ratios)
		_, _ = fmt.Fprintf(out, "| **%d** | | | | **median %.2f, worst %.2f** |\n", size, m, w)
	}
	_, _ = fmt.Fprintln(out)
	return nil
}

func intakeRound(ctx context.Context, round, size int) (base, got float64, err error) {
	dir, err := os.MkdirTemp("", "moothall-bench")
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	n := singles
	if size > 1 {
		n = hundreds
	}
	bodies, rows := transactions(n, size, round)
	// Which goes first alternates, so that a slow moment of the disk does not
	// always hit the same side.
	steps := []func() error{
		func() (err error) { base, err = measureBaseline(ctx, filepath.Join(dir, "base.db"), rows); return },
		func() (err error) {
			got, err = measureIntake(ctx, filepath.Join(dir, "moothall.db"), bodies, n*size)
			return
		},
	}
	if round%2 == 0 {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, s := range steps {
		if err := s(); err != nil {
			return 0, 0, err
		}
	}
	return base, got, nil
}

// transactions makes the bodies a homeserver would send and the same as rows.
func transactions(n, size, round int) (bodies [][]byte, rows [][]baseline.Row) {
	pad := strings.Repeat("x", bodyBytes)
	now := time.Now().UnixMilli()
	for i := range n {
		events := make([]json.RawMessage, 0, size)
		batch := make([]baseline.Row, 0, size)
		for j := range size {
			id := fmt.Sprintf("$%d-%d-%d-0123456789abcdefghijklmnopqrstuvwx", round, i, j)
			room := fmt.Sprintf("!room%d:example.org", (i*size+j)%rooms)
			body := fmt.Sprintf(`{"content":{"body":%q,"msgtype":"m.text"},"event_id":%q,"origin_server_ts":%d,"room_id":%q,"sender":"@bob:example.org","type":"m.room.message"}`, pad, id, now, room)
			events = append(events, json.RawMessage(body))
			batch = append(batch, baseline.Row{ID: id, Room: room, Sender: "@bob:example.org", Type: "m.room.message", SentAt: now, ReceivedAt: now, Body: body})
		}
		b, err := json.Marshal(map[string]any{"events": events})
		if err != nil {
			panic(err) // cannot be: it was just made
		}
		bodies, rows = append(bodies, b), append(rows, batch)
	}
	return bodies, rows
}

func measureBaseline(ctx context.Context, path string, rows [][]baseline.Row) (float64, error) {
	in, err := baseline.Open(ctx, path)
	if err != nil {
		return 0, err
	}
	defer in.Close()
	total := 0
	begin := time.Now()
	for _, batch := range rows {
		if err := in.Accept(ctx, batch); err != nil {
			return 0, err
		}
		total += len(batch)
	}
	return float64(total) / time.Since(begin).Seconds(), nil
}

func measureIntake(ctx context.Context, path string, bodies [][]byte, total int) (float64, error) {
	st, err := store.Open(ctx, store.Config{Path: path})
	if err != nil {
		return 0, err
	}
	defer st.Close()
	in, err := bridge.NewIntake(bridge.IntakeConfig{Inbox: st.Rows(), HSToken: token, Bot: "@moothall:example.org", Log: zerolog.Nop()})
	if err != nil {
		return 0, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	srv := &http.Server{Handler: in.Handler(), ReadHeaderTimeout: time.Minute}
	go srv.Serve(l) //nolint:errcheck // ended by Close
	defer srv.Close()
	url := "http://" + l.Addr().String() + "/_matrix/app/v1/transactions/"
	begin := time.Now()
	for i, b := range bodies {
		if err := put(ctx, fmt.Sprintf("%s%d", url, i), b); err != nil {
			return 0, err
		}
	}
	took := time.Since(begin)
	if _, events, _ := in.Counts(); int(events) != total {
		return 0, fmt.Errorf("stored %d events of %d", events, total)
	}
	return float64(total) / took.Seconds(), nil
}

func put(ctx context.Context, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", resp.StatusCode)
	}
	return nil
}
