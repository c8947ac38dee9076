// Package config reads what an operator tells Moothall, and renders the
// appservice registration that tells the homeserver the same.
//
// Every key is declared once, in keys.go: its name, type, default, check and
// explanation. Validation, the environment's names, the commented example file
// and [Keys] all come from that declaration, so they cannot drift apart.
//
// [Load] never stops at the first fault: it returns one [*Error] that lists
// them all, each by file, line and key. No error text holds any value, so none
// can hold a token. Nothing here writes a file, reaches the network or logs.
// Durations are time.Duration, sizes bytes. All functions are safe for
// concurrent use; a [Config] is not changed after Load returned it.
package config

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// maxFile is the largest configuration, registration or secret file that is
// read, in bytes.
const maxFile = 1 << 20

// Config is a complete, checked configuration. All paths in it are absolute.
type Config struct {
	// File is the absolute path the configuration was read from. The file
	// itself may be absent when the environment holds every mandatory key.
	File string

	Homeserver Homeserver
	AppService AppService
	Database   Database
	Admin      Admin
	Commands   Commands
	Approvals  Approvals
	Limits     Limits
	Identity   Identity
	Logging    Logging

	where map[string]string // by key, where it was set
}

// Where says where a key of this configuration is, or would be, set: for the
// end of a sentence that tells an operator what to change. It names the
// variable if the key came from the environment, else the key, line and file.
func (c *Config) Where(key string) string {
	if where := c.where[key]; where != "" {
		return where
	}
	return key + " in " + c.File
}

// Homeserver says where the homeserver is and what it is called.
type Homeserver struct {
	Address string // base URL of the client API, no trailing slash
	Domain  string // server name, the part after the colon of a Matrix ID; may have a port
}

// AppService is our side of the appservice API.
type AppService struct {
	ID      string
	URL     string // how the homeserver reaches us, no trailing slash
	Listen  string // host:port
	Bot     Bot
	ASToken Secret // we show it to the homeserver
	HSToken Secret // the homeserver shows it to us
}

// Bot is the account that speaks.
type Bot struct {
	Localpart   string
	DisplayName string // empty: left as it is on the homeserver
	Avatar      string // mxc URI, or empty: left as it is on the homeserver
}

// Database kinds.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// Database says where everything durable is kept.
type Database struct {
	Type string // SQLite or Postgres
	Path string // of the SQLite file; meaningless on PostgreSQL
	URI  Secret // of the PostgreSQL database; empty on SQLite
}

// Admin is the listener for /live, /ready and the operator's tools.
type Admin struct {
	Listen string // host:port
}

// Commands says how a person addresses the bot by command.
type Commands struct {
	Prefix string // never empty
}

// Approvals are the defaults of every approval in a room.
type Approvals struct {
	MinPower int64 // power level from which a member may decide, at least 0
	Expiry   Expiry
	Approve  []string // reactions and words that mean yes, never empty
	Reject   []string // reactions and words that mean no, never empty
}

// Expiry is how long an approval waits. The zero value is invalid: waiting for
// ever has to be said.
type Expiry struct {
	After time.Duration // more than 0, unless Never
	Never bool
}

// Limits bound what strangers and tools may cost.
type Limits struct {
	TransactionBytes int64         // largest transaction body that is read
	EventAge         time.Duration // older events are not answered
	ToolTimeout      time.Duration // longest run of one tool
}

// Identity names the key files. A file may be absent: what needs it then says
// so, the rest works.
type Identity struct {
	KeyFile        string // Ed25519, PKCS#8 in PEM: the bot's did:key
	SecretsKeyFile string // P-256, PKCS#8 in PEM: what room secrets are sealed to
}

// Log formats.
const (
	JSON   = "json"
	Pretty = "pretty"
)

// Logging says where log lines go and how they look.
type Logging struct {
	Level  string // trace, debug, info, warn or error
	Format string // JSON or Pretty
	File   string // empty: standard error
}

// Secret is a value that must not be shown. It prints, and marshals, as
// "[secret]" whatever the verb; string(s) is the value.
type Secret string

const hidden = "[secret]"

// String implements fmt.Stringer without showing the value.
func (Secret) String() string { return hidden }

// GoString implements fmt.GoStringer without showing the value.
func (Secret) GoString() string { return hidden }

// Format implements fmt.Formatter without showing the value.
func (Secret) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(hidden)) }

// MarshalText implements encoding.TextMarshaler without showing the value.
func (Secret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// BotID is the bot's full Matrix ID.
func (c *Config) BotID() string {
	return "@" + c.AppService.Bot.Localpart + ":" + c.Homeserver.Domain
}

// Load reads the file at path and the variables of environ (as os.Environ
// gives them), which win over the file. Any error it returns is an [*Error].
// An absent file is no fault if the environment holds all that is mandatory.
func Load(path string, environ []string) (*Config, error) {
	data, err := readLimited(path)
	if err != nil {
		return load(path, nil, cause(err), environ)
	}
	return load(path, data, "", environ)
}

// Parse is [Load] for bytes that are not, or not yet, in the file at path.
func Parse(path string, data []byte, environ []string) (*Config, error) {
	return load(path, data, "", environ)
}

func load(path string, data []byte, unread string, environ []string) (*Config, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, &Error{Problems: []Problem{{File: path, Text: cause(err)}}}
	}
	l := newLoader(path, filepath.Dir(abs))
	switch unread {
	case "":
		l.readYAML(data)
	case absent:
	default:
		l.markFaulty("")
	}
	l.readEnviron(environ)
	c := &Config{File: abs, where: map[string]string{}}
	l.fill(c)
	if len(l.problems) == 0 {
		l.checkTogether(c)
	}
	// An unreadable file is a fault of its own; an absent one only matters
	// when something is missing.
	if unread != "" && (unread != absent || len(l.problems) > 0) {
		l.problems = append([]Problem{{File: path, Text: unread}}, l.problems...)
	}
	if len(l.problems) > 0 {
		return nil, &Error{Problems: l.problems}
	}
	return c, nil
}

// readLimited reads a small file; one above maxFile is refused.
func readLimited(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errIsFolder
	}
	if info.Size() > maxFile {
		return nil, errTooLarge
	}
	return os.ReadFile(path) //nolint:gosec // the operator names the file
}
