package main

import (
	"fmt"
	"strings"

	"moothall/cmd/moothall/config"
)

// registrationCmd prints the registration; it writes no file, so that nothing
// a homeserver already uses is replaced by accident.
type registrationCmd struct {
	Example bool `help:"Print the example instead, which needs no configuration."`
}

// Run implements the subcommand.
func (r registrationCmd) Run(p *process) error {
	if r.Example {
		_, err := p.stdout.Write(config.ExampleRegistration())
		return err
	}
	c, err := p.load()
	if err != nil {
		return err
	}
	if _, err := p.stdout.Write(config.Registration(c)); err != nil {
		return fmt.Errorf("print registration: %w", err)
	}
	_, err = fmt.Fprintf(p.stderr, "A new registration, and a restart of the homeserver, are needed when one of these changes:\n  %s\n",
		strings.Join(config.RegistrationKeys(), "\n  "))
	return err
}
