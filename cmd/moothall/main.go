// Command moothall runs the application service and the tools to operate it.
//
// Exit codes are in exit.go; `moothall --help` lists the subcommands, each of
// which has a file of its own here.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // time windows work on an image without zone files

	"moothall/cmd/moothall/config"

	"github.com/alecthomas/kong"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// cli is the command line; kong reads the tags.
type cli struct {
	Config string `short:"c" default:"${config}" placeholder:"FILE" help:"The configuration (or MOOTHALL_CONFIG). Default: config.yaml."`

	Init         initCmd         `cmd:"" help:"Make configuration, registration and keys: what is missing, nothing twice."`
	Serve        serveCmd        `cmd:"" help:"Run the application service."`
	Doctor       doctorCmd       `cmd:"" help:"Say what is wrong, and what to do about it."`
	Registration registrationCmd `cmd:"" help:"Print the registration that fits the configuration."`
	Configuring  configCmd       `cmd:"" name:"config" help:"Check the configuration, or print an example."`
	Version      versionCmd      `cmd:"" help:"Print the version."`
}

// process is what a subcommand gets from the outside: nothing else of this
// package reads os.Args, the environment or the standard streams.
type process struct {
	configPath string
	environ    []string
	stdout     io.Writer
	stderr     io.Writer
}

// load reads the configuration the command line names.
func (p *process) load() (*config.Config, error) {
	return config.Load(p.configPath, p.environ)
}

// run is the whole program but for the signals: it returns the exit code and
// may be called again in the same process.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	var c cli
	helped := false
	parser, err := kong.New(
		&c,
		kong.Name("moothall"),
		kong.Description("A Matrix application service that runs governed tools for the people in a room."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }), // only --help calls it; parsing then goes on
		kong.Vars{"config": lookup(environ, config.EnvConfig, "config.yaml")},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		return fail(stderr, withCode(exitFailure, err))
	}
	k, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		return fail(stderr, withCode(exitUsage, fmt.Errorf("%w (moothall --help lists what there is)", err)))
	}
	k.BindTo(ctx, (*context.Context)(nil))
	if err := k.Run(&process{configPath: c.Config, environ: environ, stdout: stdout, stderr: stderr}); err != nil {
		return fail(stderr, err)
	}
	return exitOK
}

// lookup is the value of a variable, or fallback if it is empty or not there.
func lookup(environ []string, name, fallback string) string {
	for _, pair := range environ {
		if value, ok := strings.CutPrefix(pair, name+"="); ok && value != "" {
			fallback = value
		}
	}
	return fallback
}
