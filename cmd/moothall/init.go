package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"moothall/cmd/moothall/config"
)

// initCmd makes what a new installation needs. Run again it makes what is
// missing, with the tokens of the configuration that is there.
type initCmd struct {
	Homeserver  string `placeholder:"URL" help:"Where the homeserver's client API answers."`
	Domain      string `placeholder:"NAME" help:"The server name: what stands after the colon of a Matrix ID."`
	Bot         string `default:"moothall" help:"The bot's localpart."`
	Listen      string `default:"127.0.0.1:29333" help:"Where to listen for the homeserver."`
	URL         string `placeholder:"URL" help:"How the homeserver reaches us. Default: http:// and --listen."`
	AdminListen string `default:"127.0.0.1:29334" help:"Where to listen for health checks."`
	Database    string `default:"sqlite" enum:"sqlite,postgres" help:"sqlite or postgres."`
	DatabaseURI string `placeholder:"URI" help:"postgres://user:password@host/database"`
	Dir         string `default:"." help:"The folder to make the files in."`
}

// Run implements the subcommand.
func (i initCmd) Run(p *process) error {
	path, err := i.configPath(p.configPath)
	if err != nil {
		return err
	}
	s := &setup{}
	if err := i.writeConfig(s, path, p.environ); err != nil {
		return err
	}
	// Read it back, environment and all: what is made next has to agree with
	// what `serve` will use, also when the file was there before us.
	c, err := config.Load(path, p.environ)
	if err != nil {
		return err
	}
	registration := registrationPath(c)
	if err := s.write(registration, config.Registration(c)); err != nil {
		return err
	}
	if err := s.writeKey(c.Identity.KeyFile, newSigningKey); err != nil {
		return err
	}
	if err := s.writeKey(c.Identity.SecretsKeyFile, newSecretsKey); err != nil {
		return err
	}
	if _, err := fmt.Fprint(p.stdout, s.report(), nextSteps(registration, c.File)); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return s.disagreement(registration, c, p)
}

// configPath is the file to make: the one -c names, below --dir.
func (i initCmd) configPath(path string) (string, error) {
	if filepath.IsAbs(path) && i.Dir != "." {
		return "", withCode(exitUsage, errors.New("init: --dir and an absolute --config exclude each other"))
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(i.Dir, path)
	}
	return filepath.Abs(path)
}

// registrationPath is where init writes the registration, and doctor reads it.
func registrationPath(c *config.Config) string {
	return filepath.Join(filepath.Dir(c.File), "registration.yaml")
}

// writeConfig makes the configuration unless it is there. It writes nothing
// that `config check` would refuse.
func (i initCmd) writeConfig(s *setup, path string, environ []string) error {
	if _, err := os.Lstat(path); err == nil {
		s.kept = append(s.kept, path)
		return nil
	}
	if missing := i.missing(); missing != "" {
		return withCode(exitUsage, fmt.Errorf("init: %s", missing))
	}
	url := i.URL
	if url == "" {
		url = "http://" + i.Listen
	}
	data := config.Render(map[string]string{
		"homeserver.address":       strings.TrimRight(i.Homeserver, "/"),
		"homeserver.domain":        i.Domain,
		"appservice.url":           strings.TrimRight(url, "/"),
		"appservice.listen":        i.Listen,
		"appservice.as_token":      newToken(),
		"appservice.hs_token":      newToken(),
		"appservice.bot.localpart": i.Bot,
		"admin.listen":             i.AdminListen,
		"database.type":            i.Database,
		"database.uri":             i.DatabaseURI,
	})
	if err := i.check(path, data, environ); err != nil {
		return err
	}
	return s.write(path, data)
}

func (i initCmd) missing() string {
	switch {
	case i.Homeserver == "" && i.Domain == "":
		return "say where the homeserver is: --homeserver https://matrix.example.org --domain example.org"
	case i.Homeserver == "":
		return "--homeserver is missing: the URL where the homeserver's client API answers"
	case i.Domain == "":
		return "--domain is missing: the server name, what stands after the colon of a Matrix ID"
	case i.URL == "" && everywhere(i.Listen):
		return "--url is missing: --listen takes calls on every address, so say which one the homeserver is to call"
	case i.Database == config.Postgres && i.DatabaseURI == "":
		return "--database postgres needs --database-uri postgres://user:password@host/database"
	case i.Database != config.Postgres && i.DatabaseURI != "":
		return "--database-uri is only for --database postgres"
	}
	return ""
}

// everywhere says whether listen is every address of the machine, which nobody
// can call.
func everywhere(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// check refuses flags that make a wrong configuration, by the flag's name: the
// lines of a file that does not exist would help nobody.
func (i initCmd) check(path string, data []byte, environ []string) error {
	_, err := config.Parse(path, data, nil)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		flags := map[string]string{
			"homeserver.address": "--homeserver", "homeserver.domain": "--domain",
			"appservice.url": "--url", "appservice.listen": "--listen",
			"appservice.bot.localpart": "--bot", "admin.listen": "--admin-listen",
			"database.uri": "--database-uri",
		}
		var lines []string
		for _, p := range wrong.Problems {
			flag := flags[p.Key]
			if flag == "" {
				flag = p.Key
			}
			lines = append(lines, flag+" "+p.Text)
		}
		return withCode(exitUsage, fmt.Errorf("init: %s", strings.Join(lines, "\nmoothall: init: ")))
	}
	_, err = config.Parse(path, data, environ)
	return err
}
