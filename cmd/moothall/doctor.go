package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"moothall/cmd/moothall/config"
)

// doctorTimeout bounds each question to the homeserver and to the database.
const doctorTimeout = 10 * time.Second

// doctorCmd looks for what keeps an installation from working. It changes
// nothing and can run beside `serve`.
type doctorCmd struct {
	Registration string `placeholder:"FILE" help:"The registration the homeserver reads. Default: registration.yaml beside the configuration."`
}

// Run implements the subcommand.
func (d doctorCmd) Run(ctx context.Context, p *process) error {
	c, err := p.load()
	if err != nil {
		return err
	}
	if d.Registration == "" {
		d.Registration = registrationPath(c)
	}
	doc := &doctor{
		cfg: c, registration: d.Registration, out: p.stdout,
		client:        newDoctorClient(),
		checkDatabase: databaseCheck(c),
	}
	return doc.examine(ctx)
}

// newDoctorClient follows no redirect: a homeserver address that redirects
// loses the body of every request that changes something.
func newDoctorClient() *http.Client {
	return &http.Client{
		Timeout:       doctorTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// doctor examines one installation. All fields are required unless they say
// otherwise.
type doctor struct {
	cfg          *config.Config
	registration string // path of the file the homeserver reads
	client       *http.Client
	out          io.Writer

	// checkDatabase opens the database without changing it and says in one
	// sentence why it cannot be used: not writable, or newer than this program.
	// Nil: only what can be seen from outside is looked at.
	checkDatabase func(context.Context) error

	failed int
}

// examine prints one line per finding, good and bad, and returns errReported
// if any was bad.
func (d *doctor) examine(ctx context.Context) error {
	d.good("configuration", d.cfg.File+" is complete")
	if d.homeserver(ctx) {
		d.token(ctx)
	} else {
		d.skip("token", "cannot be tried while the homeserver does not answer")
	}
	d.agreement()
	d.database(ctx)
	d.keyFile("identity.key_file", d.cfg.Identity.KeyFile, isSigningKey)
	d.keyFile("identity.secrets_key_file", d.cfg.Identity.SecretsKeyFile, isSecretsKey)
	if d.failed > 0 {
		return errReported
	}
	return nil
}

func (d *doctor) good(area, text string) { d.line("ok  ", area, text) }
func (d *doctor) skip(area, text string) { d.line("skip", area, text) }
func (d *doctor) bad(area, text string)  { d.failed++; d.line("FAIL", area, text) }

func (d *doctor) line(verdict, area, text string) {
	_, _ = fmt.Fprintf(d.out, "%s  %s: %s\n", verdict, area, text)
}

// agreement compares the registration with the configuration.
func (d *doctor) agreement() {
	const area = "registration"
	r, err := config.ReadRegistration(d.registration)
	if err != nil {
		d.bad(area, fmt.Sprintf("%s; `moothall -c %s registration` prints a good one", strings.ReplaceAll(err.Error(), "\n", "; "), d.cfg.File))
		return
	}
	if differ := r.Diff(d.cfg); len(differ) > 0 {
		d.bad(area, fmt.Sprintf("%s and %s differ in %s: replace the former by what `moothall -c %s registration` prints and restart the homeserver",
			d.registration, d.cfg.File, strings.Join(differ, ", "), d.cfg.File))
		return
	}
	d.good(area, d.registration+" fits the configuration")
}

// database looks at the database from outside, then lets checkDatabase open it.
func (d *doctor) database(ctx context.Context) {
	const area = "database"
	sqlite := d.cfg.Database.Type == config.SQLite
	if sqlite {
		if problem := d.sqliteFile(); problem != "" {
			d.bad(area, problem)
			return
		}
	}
	switch {
	case d.checkDatabase != nil:
		ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
		defer cancel()
		if err := d.checkDatabase(ctx); err != nil {
			d.bad(area, err.Error())
			return
		}
		d.good(area, "can be opened and written")
	case sqlite:
		d.good(area, d.cfg.Database.Path+" can be written")
	default:
		d.skip(area, "PostgreSQL was not tried")
	}
}

// sqliteFile says why the SQLite file could not be written, or "".
func (d *doctor) sqliteFile() string {
	path, key := d.cfg.Database.Path, d.cfg.Where("database.path")
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Sprintf("the folder %s does not exist: make it, or change %s", dir, key)
	}
	// SQLite writes its journal beside the file, so the folder matters too.
	probe, err := os.CreateTemp(dir, ".moothall-doctor-*")
	if err != nil {
		return fmt.Sprintf("the folder %s cannot be written by this user: change its owner, or %s", dir, key)
	}
	_ = probe.Close()
	_ = os.Remove(probe.Name())
	info, err := os.Stat(path)
	if err != nil {
		return "" // made at the first start
	}
	if info.IsDir() {
		return fmt.Sprintf("%s is a folder, not a file: change %s", path, key)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Sprintf("%s cannot be written by this user: change its owner or mode, or %s", path, key)
	}
	_ = f.Close()
	return ""
}

// keyFile checks that a key is there, of the right kind, and its owner's alone.
func (d *doctor) keyFile(key, path string, check func(path string) error) {
	info, err := os.Stat(path)
	switch {
	case os.IsNotExist(err):
		d.bad(key, fmt.Sprintf("%s does not exist: `moothall -c %s init` makes it, or change %s", path, d.cfg.File, d.cfg.Where(key)))
		return
	case err != nil:
		d.bad(key, fmt.Sprintf("%s cannot be looked at by this user: change the mode of its folder, or %s", path, d.cfg.Where(key)))
		return
	case info.Mode().Perm()&0o077 != 0:
		d.bad(key, fmt.Sprintf("%s has mode %04o, so others can use the key: chmod 600 it", path, info.Mode().Perm()))
		return
	}
	if err := check(path); err != nil {
		d.bad(key, fmt.Sprintf("%s cannot be used (%v): restore it from a backup, or change %s", path, err, d.cfg.Where(key)))
		return
	}
	d.good(key, path+" is good")
}
