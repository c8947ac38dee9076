package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// versionCmd prints what was built, from the information the Go tool stamps.
type versionCmd struct{}

// Run implements the subcommand.
func (versionCmd) Run(p *process) error {
	_, err := fmt.Fprintf(p.stdout, "moothall %s (%s, %s/%s)\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is the module version, which the Go tool takes from the tag, or
// "(devel)" for a build outside a checkout.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
