package main

import (
	"fmt"
	"strings"

	"moothall/cmd/moothall/config"
)

// setup remembers what init made and what was there.
type setup struct {
	made, kept []string
}

func (s *setup) write(path string, data []byte) error {
	made, err := writeNew(path, data)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if made {
		s.made = append(s.made, path)
	} else {
		s.kept = append(s.kept, path)
	}
	return nil
}

func (s *setup) writeKey(path string, generate func() ([]byte, error)) error {
	data, err := generate()
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	return s.write(path, data)
}

func (s *setup) report() string {
	var b strings.Builder
	list := func(title string, paths []string) {
		if len(paths) == 0 {
			return
		}
		b.WriteString(title + "\n")
		for _, path := range paths {
			b.WriteString("  " + path + "\n")
		}
	}
	list("Made:", s.made)
	list("Already there, left as it was:", s.kept)
	return b.String()
}

// disagreement tells of a registration that was there and does not fit.
func (s *setup) disagreement(path string, c *config.Config, p *process) error {
	r, err := config.ReadRegistration(path)
	if err != nil {
		return withCode(exitFailure, err)
	}
	differ := r.Diff(c)
	if len(differ) == 0 {
		return nil
	}
	_, _ = fmt.Fprintf(p.stderr, "moothall: %s does not fit the configuration: %s differ; replace it by what `moothall -c %s registration` prints and restart the homeserver\n",
		path, strings.Join(differ, ", "), c.File)
	return errReported
}

// nextSteps is what a homeserver admin does with the files.
func nextSteps(registration, configFile string) string {
	return fmt.Sprintf(`
Next, give the homeserver the registration. One of:

  Synapse: in homeserver.yaml, then restart Synapse (its user must be able to read the file)
    app_service_config_files:
      - %[1]s

  Dendrite: in dendrite.yaml, then restart Dendrite
    app_service_api:
      config_files:
        - %[1]s

  Conduit, Conduwuit, Tuwunel, Continuwuity: in the admin room, no restart;
  send this with the content of the file below it in a code block
    !admin appservices register

Then:
  moothall -c %[2]s serve
and, whenever something is odd:
  moothall -c %[2]s doctor
`, registration, configFile)
}
