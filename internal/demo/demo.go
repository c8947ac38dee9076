// Package demo plays a short conversation between people and the real bot on a
// real homeserver, and checks what the people see.
//
// [Run] builds the homeserver and the bot, starts both as child processes, logs
// alice and bob in as ordinary clients and lets them talk: a question, its card,
// the asker's own yes that does not count, the admin's yes, a refusal, a crash
// of the bot while a question is open, and a question nobody answers. Every
// check looks through alice's client at what the homeserver tells her, never at
// the bot's log or database.
//
// When things break: a difference is printed as what was expected and what was
// seen, and the run goes on as far as it makes sense; what never comes ends the
// run after a patient wait. The children are ended in every case, also when ctx
// ends; on Linux the kernel ends them if this process is killed. Logs are kept
// when something went wrong.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Options say how to run the demo. Fields are required unless they name a
// default.
type Options struct {
	// Dir holds everything the demo makes: it must be empty or missing, and is
	// left as it is afterwards. Default: a temporary folder, removed after a run
	// without a fault.
	Dir string

	// Keep leaves everything up after the conversation until ctx ends, and says
	// how to log in.
	Keep bool

	// TranscriptFile also gets the transcript, with everything that differs from
	// run to run replaced by placeholders. Default: none.
	TranscriptFile string

	Out      io.Writer // the transcript
	Progress io.Writer // what is being built and started
}

// ErrDifference is returned by [Run] when a check failed. What was expected and
// what was seen has been printed then.
var ErrDifference = errors.New("the people saw something else than expected")

// What the product promises, and how far a slow machine may be from it.
const (
	readyPromise  = 300 * time.Millisecond
	memoryPromise = 60 << 20 // bytes
	slowMachine   = 3
)

// ErrInterrupted is returned by [Run] when its context ended before the
// conversation did.
var ErrInterrupted = errors.New("interrupted")

// Run plays the demo. It needs the go command and a working directory inside
// this module; a first run compiles the homeserver, which takes minutes. It
// returns nil only if all checks passed. With Keep it returns when ctx ends.
func Run(ctx context.Context, o Options) error {
	dir, remove, err := makeDir(o.Dir)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	w := newWorld(dir, o.Progress)
	err = errors.Join(converse(ctx, o, w), w.close(context.WithoutCancel(ctx)))
	switch {
	case err == nil:
		remove()
		return nil
	case errors.Is(err, ErrInterrupted):
		remove()
	default:
		say(o.Progress, "demo: the logs are %s and those in %s", w.bot.logFile, filepath.Join(dir, homeserverDir))
	}
	return fmt.Errorf("demo: %w", err)
}

// converse is everything between an empty world and its end.
func converse(ctx context.Context, o Options, w *world) error {
	began := time.Now()
	t := &transcript{out: o.Out}
	c := &checks{to: t}
	s := newStory(w, t, c)

	// Something that must live and dies ends what waits for it.
	alive, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := w.start(alive, cancel)
	if err == nil {
		err = s.play(alive)
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if err == nil {
		err = c.verdict()
	}
	if err == nil {
		say(o.Out, "demo: %d checks passed in %.1f s; bot start to ready %d ms; bot memory %s",
			c.passed, time.Since(began).Seconds(), w.bot.ready.Milliseconds(), mebibytes(w.bot.memory))
		if o.TranscriptFile != "" {
			err = t.save(o.TranscriptFile)
		}
	}
	if o.Keep && s.room != "" && alive.Err() == nil {
		err = errors.Join(err, w.relax(alive))
		say(o.Out, "%s", w.howToLogIn(s.room))
		<-alive.Done()
		if ctx.Err() == nil {
			err = errors.Join(err, context.Cause(alive))
		}
	}
	return err
}

// makeDir makes the folder of a run. remove does nothing to a folder somebody
// named.
func makeDir(dir string) (path string, remove func(), err error) {
	if dir == "" {
		dir, err = os.MkdirTemp("", "moothall-demo-")
		return dir, func() { _ = os.RemoveAll(dir) }, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, err
	}
	switch entries, err := os.ReadDir(dir); {
	case err != nil:
		return "", nil, err
	case len(entries) > 0:
		return "", nil, fmt.Errorf("%s is not empty: name a folder that is, or one that does not exist", dir)
	}
	return dir, func() {}, nil
}

func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format+"\n", args...) // only news
}

// mebibytes is a size for people; 0 is one the system did not tell.
func mebibytes(n int64) string {
	if n == 0 {
		return "not measured here"
	}
	return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
}
