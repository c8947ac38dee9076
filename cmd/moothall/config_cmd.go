package main

import (
	"fmt"

	"moothall/cmd/moothall/config"
)

// configCmd groups what concerns the configuration file. Nothing in it starts
// anything.
type configCmd struct {
	Check   configCheckCmd   `cmd:"" help:"List everything that is wrong with the configuration (exit code 10)."`
	Example configExampleCmd `cmd:"" help:"Print the commented example configuration."`
}

type configCheckCmd struct{}

// Run implements the subcommand.
func (configCheckCmd) Run(p *process) error {
	if _, err := p.load(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.stdout, "%s: ok\n", p.configPath)
	return err
}

type configExampleCmd struct{}

// Run implements the subcommand.
func (configExampleCmd) Run(p *process) error {
	_, err := p.stdout.Write(config.Example())
	return err
}
