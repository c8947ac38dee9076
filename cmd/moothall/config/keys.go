package config

import "strings"

// Key describes one key of the configuration.
type Key struct {
	Name         string // dotted: "homeserver.address"
	Env          string // the variable that overrides it
	EnvFile      string // the variable naming a file that holds it; secrets only
	Type         string // text, number, duration, list or secret
	Default      string // as the environment would give it; empty for mandatory keys
	Doc          string // for people, lines separated by \n
	Required     bool
	Registration bool // the homeserver needs a new registration when it changes
}

// Keys lists every key in the order of the example file.
func Keys() []Key {
	var out []Key
	for _, k := range declared() {
		d := Key{
			Name: k.name, Env: envName(k.name), Type: k.kind(), Default: k.def,
			Doc: k.doc, Required: k.required, Registration: k.registration,
		}
		if k.secret() {
			d.EnvFile = d.Env + fileSuffixEnv
		}
		out = append(out, d)
	}
	return out
}

// key is the one declaration everything about a key comes from.
type key struct {
	name         string
	into         func(*Config) any // where it goes; the pointer's type is the key's type
	def          string            // default, in the form of the environment
	example      string            // the example file's value, if not the default
	required     bool              // has no default
	registration bool
	path         bool // a file, relative to the configuration's folder
	maybeEmpty   bool // the empty text is a value
	check        func(string) string
	doc          string
}

type section struct{ name, doc string }

// sections in the order bridge admins know; a key's section is its name up to
// the last dot.
func sections() []section {
	return []section{
		{"homeserver", "The homeserver this bot lives on."},
		{"appservice", "The application service: what the registration tells the homeserver too."},
		{"appservice.bot", "The account that speaks."},
		{"database", "Where everything durable is kept. Never share a database with the homeserver."},
		{"admin", "The listener for health checks and the operator."},
		{"commands", "What people type."},
		{"approvals", "The yes or no of people in a room."},
		{"limits", "What strangers and tools may cost."},
		{"identity", "Key files, made by `moothall init`. Keep them, and keep them to yourself (mode 0600)."},
		{"logging", "Logs never hold message text, arguments or tokens."},
	}
}

const madeByInit = "Made by `moothall init`; never changes by itself."

func declared() []key {
	out := append(homeserverKeys(), storageKeys()...)
	return append(out, behaviourKeys()...)
}

func homeserverKeys() []key {
	return []key{
		{
			name: "homeserver.address", into: func(c *Config) any { return &c.Homeserver.Address },
			required: true, example: "https://matrix.example.org", check: checkURL,
			doc: "Where the client API of the homeserver answers, as seen from here.",
		},
		{
			name: "homeserver.domain", into: func(c *Config) any { return &c.Homeserver.Domain },
			required: true, registration: true, example: "example.org", check: checkDomain,
			doc: "The server name: what stands after the colon of a Matrix ID.",
		},
		{
			name: "appservice.id", into: func(c *Config) any { return &c.AppService.ID },
			def: "moothall", registration: true, check: checkID,
			doc: "A name for this application service, unique on the homeserver.",
		},
		{
			name: "appservice.url", into: func(c *Config) any { return &c.AppService.URL },
			required: true, registration: true, example: "http://127.0.0.1:29333", check: checkURL,
			doc: "How the homeserver reaches us. In a container, localhost is the container itself.",
		},
		{
			name: "appservice.listen", into: func(c *Config) any { return &c.AppService.Listen },
			def: "127.0.0.1:29333", check: checkListen,
			doc: "Where we listen for the homeserver, and for nobody else.",
		},
		{
			name: "appservice.as_token", into: func(c *Config) any { return &c.AppService.ASToken },
			required: true, registration: true, check: checkToken,
			doc: "What we show to the homeserver. " + madeByInit,
		},
		{
			name: "appservice.hs_token", into: func(c *Config) any { return &c.AppService.HSToken },
			required: true, registration: true, check: checkToken,
			doc: "What the homeserver shows to us. " + madeByInit,
		},
		{
			name: "appservice.bot.localpart", into: func(c *Config) any { return &c.AppService.Bot.Localpart },
			def: "moothall", registration: true, check: checkLocalpart,
			doc: "The bot is @localpart:domain.",
		},
		{
			name: "appservice.bot.displayname", into: func(c *Config) any { return &c.AppService.Bot.DisplayName },
			def: "Moothall", maybeEmpty: true, check: checkLine,
			doc: "Set at start when it differs; empty leaves what is there.",
		},
		{
			name: "appservice.bot.avatar", into: func(c *Config) any { return &c.AppService.Bot.Avatar },
			maybeEmpty: true, check: checkAvatar,
			doc: "An mxc:// URI, set at start when it differs; empty leaves what is there.",
		},
	}
}

func storageKeys() []key {
	return []key{
		{
			name: "database.type", into: func(c *Config) any { return &c.Database.Type },
			def: SQLite, check: oneOf(SQLite, Postgres),
			doc: "sqlite needs nothing else and carries a large community; postgres is for several replicas.",
		},
		{
			name: "database.path", into: func(c *Config) any { return &c.Database.Path },
			def: "moothall.db", path: true,
			doc: "The file, for sqlite.",
		},
		{
			name: "database.uri", into: func(c *Config) any { return &c.Database.URI },
			maybeEmpty: true, check: checkDatabaseURI,
			doc: "For postgres: postgres://user@host/database, with the password after the user and a colon.",
		},
		{
			name: "admin.listen", into: func(c *Config) any { return &c.Admin.Listen },
			def: "127.0.0.1:29334", check: checkListen,
			doc: "Where /live and /ready answer. Keep it away from strangers.",
		},
	}
}

func behaviourKeys() []key {
	return []key{
		{
			name: "commands.prefix", into: func(c *Config) any { return &c.Commands.Prefix },
			def: "!", check: checkPrefix,
			doc: "What a command begins with.",
		},
		{
			name: "approvals.min_power", into: func(c *Config) any { return &c.Approvals.MinPower },
			def: "50", check: between(0, 1<<53-1),
			doc: "The power level in the room from which a member may decide, as it is at that moment.",
		},
		{
			name: "approvals.expiry", into: func(c *Config) any { return &c.Approvals.Expiry },
			def: "24h",
			doc: "How long a question waits: a duration like 90m, or the word never.\n" +
				"The engine's own default is 15m; rooms get 24h here, because people sleep.",
		},
		{
			name: "approvals.approve", into: func(c *Config) any { return &c.Approvals.Approve },
			def: "✅,👍,approve,yes", check: checkLine,
			doc: "Reactions and words that mean yes; skin tones and upper case make no difference.",
		},
		{
			name: "approvals.reject", into: func(c *Config) any { return &c.Approvals.Reject },
			def: "❌,👎,reject,no", check: checkLine,
			doc: "Reactions and words that mean no.",
		},
		{
			name: "limits.transaction_bytes", into: func(c *Config) any { return &c.Limits.TransactionBytes },
			def: "33554432", check: between(64<<10, 1<<30),
			doc: "The largest transaction read from the homeserver, in bytes (65536 to 1073741824).",
		},
		{
			name: "limits.event_age", into: func(c *Config) any { return &c.Limits.EventAge },
			def: "1h",
			doc: "After an outage, older messages are listed once instead of answered.",
		},
		{
			name: "limits.tool_timeout", into: func(c *Config) any { return &c.Limits.ToolTimeout },
			def: "30s",
			doc: "The longest one run of a tool may take.",
		},
		{
			name: "identity.key_file", into: func(c *Config) any { return &c.Identity.KeyFile },
			def: "identity.pem", path: true,
			doc: "The bot's signing key (Ed25519).",
		},
		{
			name: "identity.secrets_key_file", into: func(c *Config) any { return &c.Identity.SecretsKeyFile },
			def: "secrets.pem", path: true,
			doc: "The key that room secrets are sealed to (P-256).",
		},
		{
			name: "logging.level", into: func(c *Config) any { return &c.Logging.Level },
			def: "info", check: oneOf("trace", "debug", "info", "warn", "error"),
			doc: "trace, debug, info, warn or error. At debug a line says why a message was ignored.",
		},
		{
			name: "logging.format", into: func(c *Config) any { return &c.Logging.Format },
			def: JSON, check: oneOf(JSON, Pretty),
			doc: "json or pretty.",
		},
		{
			name: "logging.file", into: func(c *Config) any { return &c.Logging.File },
			path: true, maybeEmpty: true,
			doc: "Empty: standard error.",
		},
	}
}

// sectionOf is the name up to the last dot.
func sectionOf(keyName string) string {
	return keyName[:strings.LastIndexByte(keyName, '.')]
}

// leaf is the name after the last dot.
func leaf(keyName string) string {
	return keyName[strings.LastIndexByte(keyName, '.')+1:]
}
