package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"maunium.net/go/mautrix/id"

	"moothall/internal/homeserver"
)

const (
	domain        = "hs.test"
	botID         = id.UserID("@moothall:" + domain)
	homeserverDir = "homeserver"

	// longExpiry is how long questions wait at first: long enough for any
	// machine. shortExpiry is for the bot's second run, where one is left to
	// expire.
	longExpiry  = 5 * time.Minute
	shortExpiry = 4 * time.Second
)

// world is everything that runs: the homeserver, the bot, the people's clients.
type world struct {
	dir      string
	progress io.Writer
	hs       *homeserver.Server
	bot      *bot

	alice, bob, carol *person
	beat              *heartbeat // nil until there is a room for it
}

func newWorld(dir string, progress io.Writer) *world {
	return &world{dir: dir, progress: progress, bot: &bot{
		program: filepath.Join(dir, "moothall"),
		config:  filepath.Join(dir, "config.yaml"),
		logFile: filepath.Join(dir, "moothall.log"),
	}}
}

// start builds and starts everything. fatal ends the run later, when something
// that must live dies.
func (w *world) start(ctx context.Context, fatal func(error)) error {
	bin, err := homeserver.Build(ctx, w.progress)
	if err != nil {
		return err
	}
	if err := w.buildBot(ctx); err != nil {
		return err
	}
	hs, err := homeserver.New(homeserver.Options{ //nolint:contextcheck // looking for a port takes no time
		Dir: filepath.Join(w.dir, homeserverDir), Binaries: bin, ServerName: domain,
		RegistrationFile: filepath.Join(w.dir, "registration.yaml"),
	})
	if err != nil {
		return err
	}
	if err := w.initBot(ctx, hs.URL()); err != nil {
		return err
	}
	w.hs = hs
	if err := hs.Start(ctx); err != nil {
		return err
	}
	w.bot.died = fatal
	if err := w.startBot(ctx, longExpiry); err != nil {
		return err
	}
	for _, p := range []**person{&w.alice, &w.bob, &w.carol} {
		name := map[**person]string{&w.alice: "alice", &w.bob: "bob", &w.carol: "carol"}[p]
		if *p, err = newPerson(ctx, hs, name); err != nil {
			return err
		}
	}
	w.alice.listen(ctx, fatal)
	w.bob.listen(ctx, fatal)
	say(w.progress, "Homeserver at %s, bot ready in %d ms on a new database", hs.URL(), w.bot.ready.Milliseconds())
	return nil
}

// buildBot compiles the program that is shown.
func (w *world) buildBot(ctx context.Context) error {
	began := time.Now()
	say(w.progress, "Building the bot")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", "goolm", "-o", w.bot.program, "moothall/cmd/moothall") //nolint:gosec // our own folder
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the bot: %w: %s", err, bytes.TrimSpace(out))
	}
	say(w.progress, "Built the bot (%.1f s)", time.Since(began).Seconds())
	return nil
}

// initBot makes configuration and registration the way an operator does.
func (w *world) initBot(ctx context.Context, hsURL string) error {
	var addrs [2]string
	for i := range addrs {
		port, err := homeserver.FreePort() //nolint:contextcheck // takes no time
		if err != nil {
			return err
		}
		addrs[i] = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	w.bot.readyURL = "http://" + addrs[1] + "/ready"
	cmd := exec.CommandContext(ctx, w.bot.program, "init", "--homeserver", hsURL, "--domain", domain, "--dir", w.dir, //nolint:gosec // our own build
		"--listen", addrs[0], "--admin-listen", addrs[1])
	cmd.Env = cleanEnviron()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("moothall init: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// startBot runs the bot with questions that wait for expiry.
func (w *world) startBot(ctx context.Context, expiry time.Duration) error {
	return w.bot.start(ctx, "MOOTHALL_APPROVALS__EXPIRY="+expiry.String())
}

// close ends everything that was started, and says what did not end well.
func (w *world) close(ctx context.Context) error {
	w.beat.stop()
	for _, p := range []*person{w.alice, w.bob} {
		if p != nil {
			p.leave()
		}
	}
	err := w.bot.stop(ctx)
	if w.hs != nil {
		err = errors.Join(err, w.hs.Stop(ctx))
	}
	return err
}

// relax starts the bot anew with questions that wait long enough for somebody
// who only begins to look around.
func (w *world) relax(ctx context.Context) error {
	defer w.beat.pause()()
	if err := w.bot.stop(ctx); err != nil {
		return err
	}
	return w.startBot(ctx, longExpiry)
}

// howToLogIn is for somebody who wants to go on with a client of their own.
func (w *world) howToLogIn(room id.RoomID) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nEverything is up until you press Ctrl-C.\n\n")
	fmt.Fprintf(&b, "  homeserver  %s\n", w.hs.URL())
	for _, p := range []*person{w.alice, w.bob, w.carol} {
		fmt.Fprintf(&b, "  user        %-16s password %s\n", p.id, p.password)
	}
	fmt.Fprintf(&b, "  room        %q, %s (alice decides, bob asks)\n", roomName, room)
	fmt.Fprintf(&b, "  bot         %s, files and log in %s\n\n", botID, w.dir)
	fmt.Fprintf(&b, "In any Matrix client on this machine choose another homeserver, give it the address\n")
	fmt.Fprintf(&b, "above, and log in with user name and password. Write !help in the room.\n")
	return b.String()
}
