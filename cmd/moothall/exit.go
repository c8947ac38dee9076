package main

import (
	"errors"
	"fmt"
	"io"

	"moothall/cmd/moothall/config"
)

// Exit codes. Scripts rely on them: a number keeps its meaning.
const (
	exitOK       = 0
	exitFailure  = 1  // something failed, or doctor found something
	exitUsage    = 2  // the command line is wrong
	exitConfig   = 10 // the configuration is missing or wrong
	exitDatabase = 14 // the database cannot be opened, or is newer than this program
	exitToken    = 16 // the homeserver refused the token
)

// errReported ends a command with exitFailure when everything has been said.
var errReported = errors.New("already reported")

// coded is an error with the exit code it ends the program with.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// withCode makes the program end with code when err reaches main.
func withCode(code int, err error) error { return &coded{code, err} }

// exitCode is the code err ends the program with. A wrong configuration is
// exitConfig without being told so.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code
	}
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitConfig
	}
	return exitFailure
}

// fail says why the program ends and returns its exit code. A configuration's
// problems already begin with their file, so that editors can jump to them.
func fail(stderr io.Writer, err error) int {
	_, isConfig := errors.AsType[*config.Error](err)
	switch {
	case errors.Is(err, errReported):
	case isConfig:
		_, _ = fmt.Fprintln(stderr, err)
	default:
		_, _ = fmt.Fprintln(stderr, "moothall:", err)
	}
	return exitCode(err)
}
