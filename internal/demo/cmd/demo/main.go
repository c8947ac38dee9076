// Command demo plays a conversation with the bot on a homeserver of its own,
// and exits 0 only if the people in it saw what they should: `make demo`.
//
// The environment says more: KEEP=1 leaves everything up until Ctrl-C and tells
// how to log in; DEMO_DIR names an empty folder for everything that is made;
// TRANSCRIPT names a file for a transcript that is the same in every run.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"moothall/internal/demo"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends us at once
	keep := os.Getenv("KEEP")
	err := demo.Run(ctx, demo.Options{
		Dir:            os.Getenv("DEMO_DIR"),
		Keep:           keep != "" && keep != "0",
		TranscriptFile: os.Getenv("TRANSCRIPT"),
		Out:            os.Stdout,
		Progress:       os.Stderr,
	})
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
