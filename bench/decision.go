package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"moothall/bridge"
	"moothall/bridge/content"
	"moothall/bridge/queue"
	"moothall/commands"
	"moothall/runtime/capability"
	"moothall/runtime/gate"
	"moothall/store"
)

// What one round measures.
const (
	decisions = 60
	benchRoom = "!bench:example.org"
	benchBot  = "@moothall:example.org"
	patience  = 10 * time.Second
)

// decision measures the time from the 200 to a reaction's transaction until the
// handler of the approved tool is entered, and takes off the commits that lie
// between and the room-state query that a decision needs, each measured in the
// same run.
func decision(ctx context.Context, out io.Writer, rounds int) error {
	_, _ = fmt.Fprintf(out, "Committed reaction to the handler's start, milliseconds (lower is better)\n\n| round | total, median | commits between | one commit | room-state query | beyond these, median | worst |\n|---|---|---|---|---|---|---|\n")
	var beyond []float64
	for round := 1; round <= rounds; round++ {
		m, err := decisionRound(ctx)
		if err != nil {
			return err
		}
		b := m.beyond()
		mid, worst := b[len(b)/2], b[len(b)-1]
		beyond = append(beyond, mid)
		_, _ = fmt.Fprintf(out, "| %d | %.2f | %d | %.2f | %.2f | %.2f | %.2f |\n", round, ms(mid2(m.total)), mid2(m.commits), ms(m.commit), ms(m.query), mid, worst)
	}
	slices.Sort(beyond)
	_, _ = fmt.Fprintf(out, "| | | | | | **median %.2f, worst round %.2f** | |\n\n", beyond[len(beyond)/2], beyond[len(beyond)-1])
	return nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func mid2[T time.Duration | int](v []T) T {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

type measured struct {
	total         []time.Duration
	commits       []int
	commit, query time.Duration
}

// beyond gives, in order, what is left of each total.
func (m measured) beyond() []float64 {
	var out []float64
	for i, t := range m.total {
		out = append(out, ms(t-time.Duration(m.commits[i])*m.commit-m.query))
	}
	slices.Sort(out)
	return out
}

// rig is the product over a file and a homeserver that answers at once.
type rig struct {
	st      *store.Store
	in      http.Handler
	hs      *fakeServer
	entered chan entry
	writes  atomic.Int64
	client  *bridge.Client
	n       int
}

type entry struct {
	at     time.Time
	writes int64
}

func decisionRound(ctx context.Context) (measured, error) {
	dir, err := os.MkdirTemp("", "moothall-bench")
	if err != nil {
		return measured{}, err
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &rig{entered: make(chan entry, 1)}
	done, err := r.start(ctx, filepath.Join(dir, "moothall.db"))
	if err != nil {
		return measured{}, err
	}
	defer func() { stop(); done() }()
	var m measured
	if m.commit, m.query, err = r.costs(ctx); err != nil {
		return m, err
	}
	for range decisions {
		total, commits, err := r.cycle(ctx)
		if err != nil {
			return m, err
		}
		m.total, m.commits = append(m.total, total), append(m.commits, commits)
	}
	return m, nil
}

func (r *rig) start(ctx context.Context, path string) (done func(), err error) {
	var b *bridge.Bridge
	r.st, err = store.Open(ctx, store.Config{
		Path: path,
		Wake: func(c queue.Class) {
			if b != nil {
				b.Wake(c)
			}
		},
		Fault: func(string) error { r.writes.Add(1); return nil },
	})
	if err != nil {
		return nil, err
	}
	if r.hs, err = newFakeServer(ctx); err != nil {
		return nil, err
	}
	if r.client, err = bridge.NewClient(r.hs.url, benchBot, token, patience); err != nil {
		return nil, err
	}
	tool := capability.Define("bench.noop", capability.Meta{
		Description: "Does nothing.", Expose: []capability.Surface{capability.SurfaceCommand},
		SideEffect: capability.SideEffectWrite, Risk: capability.RiskLow, Approval: capability.Approval{Required: true},
	}, func(context.Context, *capability.Context, struct{}) (struct{}, error) {
		r.entered <- entry{time.Now(), r.writes.Load()}
		return struct{}{}, nil
	})
	reg, err := capability.NewRegistry(tool)
	if err != nil {
		return nil, err
	}
	g, err := gate.New(gate.Config{
		Registry: reg, Ledger: r.st.Ledger(), People: r.st, Contexts: bridge.Contexts{},
		Electors: bridge.Electors{Homeserver: r.client, Bot: benchBot, MinPower: 50},
	})
	if err != nil {
		return nil, err
	}
	keys, err := content.NewKeySet(content.DefaultApprove(), content.DefaultReject())
	if err != nil {
		return nil, err
	}
	b, err = bridge.New(bridge.Config{
		Rows: r.st.Rows(), Homeserver: r.client, Gate: g, Commands: commands.New(g, "!"),
		Bot: benchBot, Domain: "example.org", Owner: "bench", Keys: keys, MinPower: 50,
	})
	if err != nil {
		return nil, err
	}
	in, err := bridge.NewIntake(bridge.IntakeConfig{Inbox: r.st.Rows(), HSToken: token, Bot: benchBot, Log: zerolog.Nop()})
	if err != nil {
		return nil, err
	}
	r.in = in.Handler()
	ended := make(chan struct{})
	go func() { defer close(ended); b.Run(ctx, time.Second) }()
	return func() {
		<-ended
		r.hs.close()
		_ = r.st.Close() // a temporary file
	}, nil
}

// costs measures one commit and one question who may decide.
func (r *rig) costs(ctx context.Context) (commit, query time.Duration, err error) {
	el := bridge.Electors{Homeserver: r.client, Bot: benchBot, MinPower: 50}
	a := gate.Approval{Origin: gate.Origin{Ref: `{"room":"` + benchRoom + `"}`}}
	var commits, queries []time.Duration
	for i := range 100 {
		t := time.Now()
		// A transaction of the usual size: a row, its lane, the commit.
		w := queue.Work{
			Key: fmt.Sprintf("bench/%d", i), Class: queue.ClassThread, Lane: "bench", Kind: queue.KindShow,
			Ref: "bench", NotBefore: t.Add(time.Hour),
		}
		if err := r.st.Rows().AddWork(ctx, w); err != nil {
			return 0, 0, err
		}
		commits = append(commits, time.Since(t))
		t = time.Now()
		if ans, why := el.MayDecide(ctx, a, capability.Actor{ID: "@alice:example.org", Kind: capability.KindUser}); ans != gate.AnswerYes {
			return 0, 0, errors.New("alice may not decide: " + why)
		}
		queries = append(queries, time.Since(t))
	}
	return mid2(commits), mid2(queries), nil
}

// cycle asks, waits for the card and its reactions, approves, and measures.
func (r *rig) cycle(ctx context.Context) (total time.Duration, commits int, err error) {
	r.n++
	if err := r.push(ctx, fmt.Sprintf("$ask%d", r.n), "@bob:example.org", "m.room.message", map[string]any{"msgtype": "m.text", "body": "!run bench.noop"}); err != nil {
		return 0, 0, err
	}
	card, err := r.hs.card(ctx)
	if err != nil {
		return 0, 0, err
	}
	if err := r.push(ctx, fmt.Sprintf("$yes%d", r.n), "@alice:example.org", "m.reaction", map[string]any{
		"m.relates_to": map[string]any{"rel_type": "m.annotation", "event_id": card, "key": "✅"},
	}); err != nil {
		return 0, 0, err
	}
	begin, writes := time.Now(), r.writes.Load()
	select {
	case e := <-r.entered:
		return e.at.Sub(begin), int(e.writes - writes), r.hs.quiet(ctx)
	case <-time.After(patience): //nolint:forbidigo // a bound on a measurement
		return 0, 0, errors.New("the tool was not run")
	}
}

func (r *rig) push(ctx context.Context, id, sender, evType string, c map[string]any) error {
	body, err := json.Marshal(map[string]any{"events": []any{map[string]any{
		"event_id": id, "room_id": benchRoom, "sender": sender, "type": evType,
		"origin_server_ts": time.Now().UnixMilli(), "content": c,
	}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://bench/_matrix/app/v1/transactions/"+id[1:], strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	r.in.ServeHTTP(w, req)
	if w.status != http.StatusOK {
		return fmt.Errorf("intake answered %d", w.status)
	}
	return nil
}

type recorder struct {
	header http.Header
	status int
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (w *recorder) WriteHeader(s int)           { w.status = s }

// fakeServer answers the few client API calls of the flow at once, over real
// HTTP on the loopback.
type fakeServer struct {
	url   string
	srv   *http.Server
	sends atomic.Int64
	cards chan string
}

func newFakeServer(ctx context.Context) (*fakeServer, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &fakeServer{url: "http://" + l.Addr().String(), cards: make(chan string, 16)}
	f.srv = &http.Server{Handler: http.HandlerFunc(f.serve), ReadHeaderTimeout: time.Minute}
	go f.srv.Serve(l) //nolint:errcheck // ended by close
	return f, nil
}

func (f *fakeServer) close() { _ = f.srv.Close() }

func (f *fakeServer) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch p := r.URL.Path; {
	case strings.HasSuffix(p, "/state/m.room.power_levels/"):
		_, _ = io.WriteString(w, `{"users":{"@alice:example.org":100}}`)
	case strings.HasSuffix(p, "/state/m.room.create/"):
		_, _ = io.WriteString(w, `{"creator":"@alice:example.org","room_version":"10"}`)
	case strings.Contains(p, "/state/m.room.member/"):
		_, _ = io.WriteString(w, `{"membership":"join"}`)
	case strings.Contains(p, "/send/"), strings.Contains(p, "/redact/"):
		var c map[string]json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&c) // a redaction has no body worth reading
		id := fmt.Sprintf("$sent%d", f.sends.Add(1))
		_, _ = fmt.Fprintf(w, `{"event_id":%q}`, id)
		if _, isCard := c["org.moothall.card"]; isCard && c["m.new_content"] == nil {
			f.cards <- id
		}
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"errcode":"M_NOT_FOUND","error":"not here"}`)
	}
}

// card waits for the next card and until the reactions on it are sent, too.
func (f *fakeServer) card(ctx context.Context) (string, error) {
	select {
	case id := <-f.cards:
		return id, f.quiet(ctx)
	case <-time.After(patience): //nolint:forbidigo // a bound on a measurement
		return "", errors.New("no card was posted")
	}
}

// quiet waits until nothing was sent for a moment.
func (f *fakeServer) quiet(ctx context.Context) error {
	const moment = 40 * time.Millisecond
	t := time.NewTicker(moment)
	defer t.Stop()
	for last := int64(-1); ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		n := f.sends.Load()
		if n == last {
			return nil
		}
		last = n
	}
}
