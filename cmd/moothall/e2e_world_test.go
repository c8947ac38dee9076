package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"maunium.net/go/mautrix"
	"maunium.net/go/mautrix/event"
	"maunium.net/go/mautrix/id"

	"moothall/cmd/moothall/config"
	"moothall/internal/homeserver"
	"moothall/internal/homeserver/homeservertest"
	"moothall/internal/pgtest"
)

const (
	e2eDomain = "hs.test"
	e2eBot    = id.UserID("@moothall:" + e2eDomain)

	// patience is how long what must come may take: after a failed delivery the
	// homeserver waits 2, 4, 8 … seconds, and after its own crash up to 30.
	patience = time.Minute
	// settling is how long is watched for what must not come.
	settling = 1500 * time.Millisecond
	// leaseTime: on PostgreSQL a dead process's lanes are free only then.
	leaseTime = 3 * time.Second
)

// world is a homeserver, a bot in a process of its own, and people with
// ordinary clients. What happened is read as one of them.
type world struct {
	t                 *testing.T
	dir               string
	canary            string // in every argument; must not be in the log
	cfg               *config.Config
	hs                *homeserver.Server
	bot               *botProcess
	alice, bob, carol *person
	room              id.RoomID
	beat              *sync.Mutex // held: no heartbeat now
}

// newWorld starts everything but people and room: the homeserver runs, the bot
// does not. db is "sqlite" or "postgres".
func newWorld(t *testing.T, db string) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), beat: new(sync.Mutex), canary: "canary" + strings.ToLower(rand.Text())}
	args := []string{"init", "--domain", e2eDomain, "--dir", w.dir, "--database", db}
	if db == config.Postgres {
		args = append(args, "--database-uri", pgtest.DSN(t))
	} else {
		t.Log("engine: sqlite")
	}
	bin := homeservertest.ForTest(t)
	port := freePort(t)
	args = append(args, "--homeserver", "http://"+local(port), "--listen", local(freePort(t)), "--admin-listen", local(freePort(t)))
	var out strings.Builder
	if code := run(t.Context(), args, nil, &out, &out); code != exitOK {
		t.Fatalf("moothall init: exit %d: %s", code, out.String())
	}
	var err error
	if w.cfg, err = config.Load(filepath.Join(w.dir, "config.yaml"), nil); err != nil {
		t.Fatal(err)
	}
	w.hs = homeservertest.Start(t, homeserver.Options{
		Dir: filepath.Join(w.dir, "homeserver"), Binaries: bin, ServerName: e2eDomain, Port: port,
		RegistrationFile: filepath.Join(w.dir, "registration.yaml"),
	})
	w.bot = &botProcess{
		t: t, admin: "http://" + w.cfg.Admin.Listen, logFile: filepath.Join(w.dir, "bot.log"),
		env: []string{
			config.EnvConfig + "=" + w.cfg.File, "MOOTHALL_LOGGING__LEVEL=trace",
			envCounter + "=" + w.path("counter"), envTrap + "=" + w.path("trap"), envHold + "=" + w.path("hold"),
			envLease + "=" + leaseTime.String(),
		},
	}
	t.Cleanup(func() {
		w.bot.kill()
		w.discreet()
		if t.Failed() {
			t.Logf("the bot's log ends:\n%s", w.bot.logTail())
		}
	})
	return w
}

// peopled starts the bot, and makes a room of alice (power 100) with bob and
// carol (50) and the bot (50) in it.
func (w *world) peopled() *world {
	w.t.Helper()
	w.bot.start()
	for name, p := range map[string]**person{"alice": &w.alice, "bob": &w.bob, "carol": &w.carol} {
		*p = newPerson(w.t, w.hs, name)
	}
	quiet := w.newRoom()
	w.room = w.newRoom(w.bob, w.carol)
	go w.keepBeating(quiet)
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// newRoom makes a room and waits until everybody is in it.
func (w *world) newRoom(guests ...*person) id.RoomID {
	w.t.Helper()
	levels := map[id.UserID]int{w.alice.id: 100, e2eBot: 50}
	invite := []id.UserID{e2eBot}
	for _, p := range guests {
		levels[p.id] = 50
		invite = append(invite, p.id)
	}
	resp, err := w.alice.client.CreateRoom(w.t.Context(), &mautrix.ReqCreateRoom{
		Name: "Ops", Preset: "private_chat", Invite: invite,
		PowerLevelOverride: &event.PowerLevelsEventContent{Users: levels},
	})
	if err != nil {
		w.t.Fatalf("make a room: %v", err)
	}
	for _, p := range guests {
		if _, err := p.client.JoinRoomByID(w.t.Context(), resp.RoomID); err != nil {
			w.t.Fatalf("%s joins: %v", p.id, err)
		}
	}
	w.alice.await("the bot joins", func(ev *event.Event) bool {
		return ev.RoomID == resp.RoomID && ev.Type == event.StateMember && ev.GetStateKey() == e2eBot.String() &&
			ev.Content.AsMember().Membership == event.MembershipJoin
	})
	return resp.RoomID
}

// keepBeating sends an event that means nothing each second: after some seconds
// without any the homeserver delivers the next one seconds late.
func (w *world) keepBeating(room id.RoomID) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.beat.Lock()
			_, _ = w.alice.client.SendMessageEvent(w.t.Context(), room, event.Type{Type: "org.example.heartbeat", Class: event.MessageEventType}, map[string]any{})
			w.beat.Unlock()
		case <-w.t.Context().Done():
			return
		}
	}
}

// quiet holds the heartbeat: a beat that finds the bot down makes the homeserver
// wait before it tries again.
func (w *world) quiet() (resume func()) {
	w.beat.Lock()
	return w.beat.Unlock
}

// discreet fails the test if the bot's log holds a token or what people wrote,
// or a fault of the program.
func (w *world) discreet() {
	log, err := os.ReadFile(w.bot.logFile)
	if errors.Is(err, os.ErrNotExist) {
		return // never started
	}
	if err != nil {
		w.t.Error(err)
	}
	for what, secret := range map[string]string{
		"what people wrote": w.canary, "the as_token": string(w.cfg.AppService.ASToken), "the hs_token": string(w.cfg.AppService.HSToken),
	} {
		if bytes.Contains(log, []byte(secret)) {
			w.t.Errorf("the log holds %s", what)
		}
	}
	for _, word := range []string{"DATA RACE", "panic"} {
		if i := bytes.Index(log, []byte(word)); i >= 0 {
			w.t.Errorf("the bot's process had a %s:\n%s", word, log[i:min(i+4000, len(log))])
		}
	}
}

// count is how often the tool ran with this note, always as bob.
func (w *world) count(note string) int {
	w.t.Helper()
	b, err := os.ReadFile(w.path("counter"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == w.bob.id.String()+" "+note {
			n++
		}
	}
	return n
}

func (w *world) touch(name, content string) {
	w.t.Helper()
	// It is read while it is written; a rename is all or nothing.
	if err := os.WriteFile(w.path(name+".new"), []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(w.path(name+".new"), w.path(name)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.Remove(w.path(name)); err != nil {
		w.t.Fatal(err)
	}
}

// deliver hands events to the bot as the homeserver would.
func (w *world) deliver(txn string, events ...*event.Event) error {
	raws := make([]string, 0, len(events))
	for _, ev := range events {
		raws = append(raws, rawEvent(w.t, ev))
	}
	body := `{"events":[` + strings.Join(raws, ",") + `]}`
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPut,
		"http://"+w.cfg.AppService.Listen+"/_matrix/app/v1/transactions/"+txn, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+string(w.cfg.AppService.HSToken))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the bot answered %d", resp.StatusCode)
	}
	return nil
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := homeserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// botProcess runs the service in a process of its own, one at a time.
type botProcess struct {
	t       *testing.T
	admin   string
	logFile string
	env     []string
	cmd     *exec.Cmd // nil: not running
	stdin   io.Closer
	done    chan struct{}
}

// launch starts the process and does not wait for anything.
func (b *botProcess) launch(extra ...string) {
	b.t.Helper()
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	log, err := os.OpenFile(b.logFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := &exec.Cmd{Path: self, Args: []string{botProgram}, Stdout: log, Stderr: log}
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "MOOTHALL_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(append(cmd.Env, b.env...), extra...)
	if b.stdin, err = cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatalf("start the bot: %v", err)
	}
	b.cmd, b.done = cmd, make(chan struct{})
	go func(done chan struct{}) {
		_ = cmd.Wait() // how it ended is in ProcessState
		close(done)
	}(b.done)
}

// start starts the process, waits until it is ready and says how long that took.
func (b *botProcess) start(extra ...string) time.Duration {
	b.t.Helper()
	began := time.Now()
	b.launch(extra...)
	b.awaitStatus("/ready", http.StatusOK)
	return time.Since(began)
}

func (b *botProcess) awaitStatus(path string, want int) {
	b.t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for b.status(path) != want {
		select {
		case <-tick.C:
		case <-b.done:
			b.t.Fatalf("the bot ended: %s\n%s", b.cmd.ProcessState, b.logTail())
		case <-limit.C:
			b.t.Fatalf("%s is not %d\n%s", path, want, b.logTail())
		}
	}
}

// status is what the admin listener answers; 0 if nobody does.
func (b *botProcess) status(path string) int {
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.admin+path, http.NoBody)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// kill ends it as a crash would.
func (b *botProcess) kill() {
	if b.cmd != nil {
		_ = b.cmd.Process.Kill()
		b.ended(patience)
	}
}

// stop ends it as an operator would and gives the exit code.
func (b *botProcess) stop(limit time.Duration) int {
	b.t.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	return b.ended(limit)
}

// ended waits until the process is gone and gives its exit code, -1 for a
// signal.
func (b *botProcess) ended(limit time.Duration) int {
	b.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-b.done:
	case <-timer.C:
		_ = b.cmd.Process.Kill()
		<-b.done
		b.t.Errorf("the bot did not end within %s", limit)
	}
	code := b.cmd.ProcessState.ExitCode()
	_ = b.stdin.Close()
	b.cmd = nil
	return code
}

func (b *botProcess) log() string {
	raw, err := os.ReadFile(b.logFile)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (b *botProcess) logTail() string {
	text := b.log()
	return text[max(0, len(text)-6000):]
}

// pause lets time pass in which nothing may happen.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
