package pgtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options describe a server of one's own. The zero value is what [DSN] uses.
type Options struct {
	// Durable makes the server wait for the disk as a real one does. Otherwise
	// it is quicker, and a crash of the machine (not of the server) may lose data.
	Durable bool
}

// Server is a running PostgreSQL. It is safe for concurrent use.
type Server struct {
	dsn   string
	leash io.Closer     // while it is open the server lives
	done  chan struct{} // closed when server and folder are gone
	err   error         // how the server ended; read after done
	out   *lastOutput
	cmd   *exec.Cmd

	stop    sync.Once
	stopErr error
}

const (
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	probeEvery   = 20 * time.Millisecond

	// portTries is how many ports are tried: another process may take the free
	// port that was found before the server does.
	portTries = 5

	superuser = "moothall"
)

// keeper runs the server ("$@") and ends it when its standard input does, that
// is when the process that started it closes it or dies in any way. It then
// removes the folder in $dir. It runs as the server's user, who need not be
// ours, so that it may.
const keeper = `
exec 3<&0
"$@" 3<&- </dev/null &
server=$!
{ read -r _ <&3; kill -INT "$server"; } 2>/dev/null &
watch=$!
wait "$server"
code=$?
kill "$watch" 2>/dev/null
cd /
rm -rf -- "$dir"
exit "$code"
`

// Start makes and runs a server. It lives until [Server.Stop] or the end of
// this process; ctx bounds only the start. [ErrNotInstalled] means that the
// machine has no PostgreSQL.
func Start(ctx context.Context, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	bin, err := binDir()
	if err != nil {
		return nil, err
	}
	who, err := serverUser()
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	for try := 1; ; try++ {
		s, err := startOnce(ctx, o, bin, who)
		if err == nil {
			return s, nil
		}
		if try == portTries || !errors.Is(err, errPortTaken) {
			return nil, fmt.Errorf("start PostgreSQL: %w", err)
		}
	}
}

var errPortTaken = errors.New("the port was taken meanwhile")

func startOnce(ctx context.Context, o Options, bin string, who *account) (_ *Server, err error) {
	dir, err := who.makeDir()
	if err != nil {
		return nil, err
	}
	// Once the keeper runs the folder is his; removing it twice does no harm.
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	password := rand.Text()
	data := filepath.Join(dir, "data")
	if err := initdb(ctx, bin, who, dir, password); err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{
		"-D", data, "-p", strconv.Itoa(port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "max_connections=200", "-c", "shared_buffers=32MB", "-c", "timezone=UTC",
	}
	if !o.Durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	s := &Server{
		dsn: (&url.URL{
			Scheme:   "postgres",
			User:     url.UserPassword(superuser, password),
			Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			Path:     "/postgres",
			RawQuery: "sslmode=disable",
		}).String(),
		done: make(chan struct{}),
		out:  &lastOutput{},
	}
	if err := s.launch(ctx, who, dir, append([]string{filepath.Join(bin, "postgres")}, args...)); err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// initdb makes the files of a new server in the folder data below dir.
func initdb(ctx context.Context, bin string, who *account, dir, password string) error {
	// In a file rather than an argument, which everybody on the machine can see.
	secret := filepath.Join(dir, "password")
	if err := who.writeFile(secret, password); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), //nolint:gosec // a program of this machine
		"-D", filepath.Join(dir, "data"), "-U", superuser, "--auth=scram-sha-256", "--pwfile="+secret,
		"--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
	who.apply(cmd, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	if err := os.Remove(secret); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	return nil
}

// launch runs command under the keeper.
func (s *Server) launch(ctx context.Context, who *account, dir string, command []string) error {
	// The caller's ctx is for the start only.
	args := append([]string{"-c", keeper, "keeper"}, command...)
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", args...) //nolint:gosec // our own script
	who.apply(cmd, dir)
	cmd.Env = append(cmd.Env, "dir="+dir)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	leash, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.leash = cmd, leash
	go func() {
		s.err = cmd.Wait()
		close(s.done)
	}()
	return nil
}

// awaitReady returns when the server takes connections, ends or ctx does.
func (s *Server) awaitReady(ctx context.Context) error {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-s.done:
			if strings.Contains(s.out.String(), "could not bind") {
				return errPortTaken
			}
			return fmt.Errorf("it exited: %w: %s", s.err, s.out)
		case <-ctx.Done():
			return fmt.Errorf("it takes no connections: %w: %s", ctx.Err(), s.out)
		}
	}
}

// DSN is the address of the server's own database, with all rights. It holds
// the password.
func (s *Server) DSN() string { return s.dsn }

// Stop ends the server, cuts its connections, removes its folder and returns
// when all that is done. Later calls return what the first did.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		_ = s.leash.Close() // it may have ended already
		limit := time.NewTimer(stopTimeout)
		defer limit.Stop()
		select {
		case <-s.done:
			if s.err != nil {
				s.stopErr = fmt.Errorf("PostgreSQL ended badly: %w: %s", s.err, s.out)
			}
		case <-limit.C:
			// The keeper leads a process group that the server is in.
			_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
			<-s.done
			s.stopErr = fmt.Errorf("PostgreSQL did not end in %s and was killed", stopTimeout)
		}
	})
	return s.stopErr
}

// binDir is the folder of the server programs: the one in PATH, else the newest
// that Debian or Red Hat packages have put aside.
func binDir() (string, error) {
	var dirs []string
	for _, pattern := range []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return "", fmt.Errorf("look for PostgreSQL: %w", err)
		}
		dirs = append(dirs, found...)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return version(b) - version(a) })
	dirs = append(filepath.SplitList(os.Getenv("PATH")), dirs...)
	for _, dir := range dirs {
		if filepath.IsAbs(dir) && isProgram(filepath.Join(dir, "initdb")) && isProgram(filepath.Join(dir, "postgres")) {
			return dir, nil
		}
	}
	return "", ErrNotInstalled
}

// version is the only number in the path of a server's programs.
func version(dir string) int {
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, dir)
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

func isProgram(path string) bool {
	info, err := os.Stat(path) //nolint:gosec // PATH is the caller's to choose
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

func freePort(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	_, text, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	return strconv.Atoi(text)
}

// lastOutput keeps the end of what was written to it.
type lastOutput struct {
	mu  sync.Mutex
	buf []byte
}

const keptOutput = 4 << 10

func (o *lastOutput) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf = append(o.buf, b...)
	o.buf = o.buf[max(0, len(o.buf)-keptOutput):]
	return len(b), nil
}

func (o *lastOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.ToValidUTF8(strings.TrimSpace(string(o.buf)), "?")
}
