// Package homeserver builds, configures and runs the homeserver that tests,
// benchmarks and the demo talk to: Dendrite, as a child process on loopback.
//
// Nothing here is part of the product. A [Server] belongs to one folder, which
// holds its keys, databases, port and log; opening the folder again gives the
// same homeserver back, so a crash and a restart can be played for real. A
// folder is never run twice at once: the second [Server.Start] fails.
//
// When things break: a start that does not come up kills what it started and
// quotes the log; a homeserver that died by itself is reported by
// [Server.Stop]; on Linux the child is killed by the kernel when this process
// dies, however it dies. Federation is off and the server listens on 127.0.0.1
// only.
//
// A [Server] is safe for concurrent use.
package homeserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"time"
)

// Options describe one homeserver. Fields are required unless they name a
// default.
type Options struct {
	// Dir holds everything the homeserver keeps. It is made if missing. An
	// existing one is opened again with its port, name and secrets.
	Dir      string
	Binaries Binaries // from [Build]

	// ServerName is the part of a Matrix ID after the colon. It cannot change
	// once Dir exists. Default: "hs.test".
	ServerName string

	// Port on 127.0.0.1. Default: the port of an existing Dir, else a free one.
	Port int

	// RegistrationFile is the application service registration, read by the
	// homeserver at each start. Default: no application service.
	RegistrationFile string

	// RateLimiting slows clients down as a public homeserver does. Default: off.
	RateLimiting bool
}

// Server is a configured homeserver, running or not.
type Server struct {
	opts   Options
	secret string // registers accounts

	turn sync.Mutex // held by Start and Stop, so that they do not overlap

	mu    sync.Mutex // guards what follows
	child *child     // nil: not running, or killed on purpose
}

// state is what a folder remembers beside the homeserver's own files.
type state struct {
	ServerName   string `json:"server_name"`
	Port         int    `json:"port"`
	SharedSecret string `json:"shared_secret"`
}

const (
	stateFile  = "state.json"
	configFile = "dendrite.yaml"
	keyFile    = "matrix_key.pem"
	logFile    = "dendrite.log"
	lockFile   = "lock"

	// keyTimeout bounds generate-keys, which takes some milliseconds.
	keyTimeout = 30 * time.Second
)

// New writes the configuration of a homeserver, or opens an existing folder
// again. It starts nothing.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	st, err := readState(o.Dir)
	if err != nil {
		return nil, err
	}
	if st.ServerName == "" {
		st = state{ServerName: o.ServerName, SharedSecret: secret()}
	}
	if st.ServerName != o.ServerName {
		return nil, fmt.Errorf("%s belongs to homeserver %q, not %q", o.Dir, st.ServerName, o.ServerName)
	}
	if o.Port != 0 {
		st.Port = o.Port
	}
	if st.Port == 0 {
		if st.Port, err = FreePort(); err != nil {
			return nil, err
		}
	}
	o.Port = st.Port

	b, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	if err := replaceFile(filepath.Join(o.Dir, stateFile), b); err != nil {
		return nil, err
	}
	if err := ensureKey(o); err != nil {
		return nil, err
	}
	cfg, err := config(o, st.SharedSecret)
	if err != nil {
		return nil, err
	}
	if err := replaceFile(filepath.Join(o.Dir, configFile), cfg); err != nil {
		return nil, err
	}
	return &Server{opts: o, secret: st.SharedSecret}, nil
}

// serverNames is what a test homeserver may be called: a host name, perhaps
// with a port. It goes into a configuration file as it is.
var serverNames = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[0-9]{1,5})?$`)

// complete fills defaults, makes paths absolute and the folder exist, and
// reports every fault at once.
func (o *Options) complete() error {
	var faults []error
	if o.ServerName == "" {
		o.ServerName = "hs.test"
	}
	if !serverNames.MatchString(o.ServerName) {
		faults = append(faults, fmt.Errorf("server name %q is not a host name", o.ServerName))
	}
	if o.Port < 0 || o.Port > 65535 {
		faults = append(faults, fmt.Errorf("port %d is not a TCP port", o.Port))
	}
	if o.Dir == "" {
		faults = append(faults, errors.New("no folder given"))
	}
	if o.Binaries.Dendrite == "" || o.Binaries.GenerateKeys == "" {
		faults = append(faults, errors.New("no binaries given: call Build first"))
	}
	if len(faults) > 0 {
		return fmt.Errorf("homeserver options: %w", errors.Join(faults...))
	}
	// The child runs inside Dir, so every path has to hold from there.
	for _, p := range []*string{&o.Dir, &o.RegistrationFile, &o.Binaries.Dendrite, &o.Binaries.GenerateKeys} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return fmt.Errorf("absolute path of %s: %w", *p, err)
		}
		*p = abs
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("make homeserver folder: %w", err)
	}
	return nil
}

// URL is the base address of the client API, without a slash at its end.
func (s *Server) URL() string { return "http://" + s.address() }

// ServerName is the part of this homeserver's Matrix IDs after the colon.
func (s *Server) ServerName() string { return s.opts.ServerName }

// LogFile is where the homeserver's output goes. It is appended to at each
// start.
func (s *Server) LogFile() string { return filepath.Join(s.opts.Dir, logFile) }

func (s *Server) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.opts.Port))
}

// readState returns the zero state for a folder that has none.
func readState(dir string) (state, error) {
	var st state
	b, err := os.ReadFile(filepath.Join(dir, stateFile)) //nolint:gosec // the caller's own folder
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, fmt.Errorf("read homeserver state: %w", err)
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return st, fmt.Errorf("read homeserver state in %s: %w", dir, err)
	}
	if st.ServerName == "" || st.SharedSecret == "" {
		return st, fmt.Errorf("homeserver state in %s is incomplete", dir)
	}
	return st, nil
}

// ensureKey makes the homeserver's signing key unless it exists.
func ensureKey(o Options) error {
	path := filepath.Join(o.Dir, keyFile)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	tmp := path + ".new"
	out, err := exec.CommandContext(ctx, o.Binaries.GenerateKeys, "--private-key", tmp).CombinedOutput() //nolint:gosec // our own build
	if err != nil {
		return fmt.Errorf("generate homeserver key: %w: %s", err, out)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("keep homeserver key: %w", err)
	}
	return nil
}

// replaceFile writes a file that is either the old or the new one, whatever
// happens meanwhile.
func replaceFile(path string, b []byte) error {
	tmp := path + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func secret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails: it would end the program
	return hex.EncodeToString(b)
}
