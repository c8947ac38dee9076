package homeserver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"moothall/internal/homeserver"
	"moothall/internal/homeserver/homeservertest"
)

const registration = `id: moothall
url: http://127.0.0.1:9
as_token: example-as-token
hs_token: example-hs-token
sender_localpart: moothall
rate_limited: false
namespaces: {users: [], aliases: [], rooms: []}
`

// soon is more than a start or stop takes, on a busy machine too.
const soon = 20 * time.Second

func TestLifeOfAHomeserver(t *testing.T) {
	bin := homeservertest.ForTest(t)
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), `a "folder" with spaces`)
	reg := filepath.Join(t.TempDir(), "registration.yaml")
	write(t, reg, registration)
	opts := homeserver.Options{Dir: dir, Binaries: bin, RegistrationFile: reg}

	s := open(t, opts)
	if s.PID() != 0 || s.RSS() != 0 {
		t.Error("a homeserver that was not started has a process")
	}
	start(t, s)
	if rss := s.RSS(); rss < 10<<20 {
		t.Errorf("RSS is %d bytes; want some tens of MiB", rss)
	}
	if got := whoami(t, s, "example-as-token"); got != "@moothall:hs.test" {
		t.Errorf("the registration's token belongs to %q", got)
	}

	alice, first, err := s.Register(ctx, "alice", "alice-password", false)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Register(ctx, "bob", "bob-password", true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Register(ctx, "alice", "other-password", false); err == nil || !strings.Contains(err.Error(), "M_USER_IN_USE") {
		t.Errorf("registering alice twice: %v", err)
	}
	if _, second, err := s.Login(ctx, "alice", "alice-password"); err != nil || second == first {
		t.Errorf("second login: device %q after %q, error %v", second, first, err)
	}
	if _, _, err := s.Login(ctx, "alice", "wrong"); err == nil || strings.Contains(err.Error(), "wrong") {
		t.Errorf("login with a wrong password: %v", err)
	}
	if err := s.Start(ctx); err == nil {
		t.Error("a running homeserver was started again")
	}
	if err := open(t, opts).Start(ctx); err == nil {
		t.Error("two homeservers run on one folder")
	}

	pid, url := s.PID(), s.URL()
	s.Kill()
	s.Kill() // once more does nothing
	if alive(pid) || s.PID() != 0 {
		t.Error("it lives after Kill")
	}

	s = open(t, opts) // as a new process would
	began := time.Now()
	start(t, s)
	t.Logf("start after a crash: %v, %d MiB", time.Since(began).Round(time.Millisecond), s.RSS()>>20)
	if s.URL() != url {
		t.Errorf("address is %s after a restart, was %s", s.URL(), url)
	}
	if got := whoami(t, s, alice); got != "@alice:hs.test" {
		t.Errorf("alice's token belongs to %q after a crash", got)
	}

	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	pid = s.PID()
	for range 2 { // the second does nothing
		if err := s.Stop(ctx); err != nil {
			t.Error(err)
		}
	}
	if alive(pid) {
		t.Error("it lives after Stop")
	}
}

func TestStopTellsOfACrash(t *testing.T) {
	s := open(t, homeserver.Options{Dir: t.TempDir(), Binaries: homeservertest.ForTest(t)})
	start(t, s)
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, "the process is gone", func() bool { return s.PID() == 0 })
	if err := s.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "died by itself") {
		t.Errorf("stop after a crash: %v", err)
	}
}

func TestFailedStartSaysWhy(t *testing.T) {
	bin := homeservertest.ForTest(t)
	tests := []struct {
		name  string
		spoil func(t *testing.T, o *homeserver.Options)
		want  string
	}{
		{"the registration is missing", func(t *testing.T, o *homeserver.Options) {
			t.Helper()
			o.RegistrationFile = filepath.Join(t.TempDir(), "none.yaml")
		}, "none.yaml"},
		{"the program does nothing", func(t *testing.T, o *homeserver.Options) {
			t.Helper()
			o.Binaries.Dendrite = filepath.Join(t.TempDir(), "quitter")
			write(t, o.Binaries.Dendrite, "#!/bin/sh\necho so long\n")
		}, "so long"},
		{"the port is taken", func(t *testing.T, o *homeserver.Options) {
			t.Helper()
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			o.Port = l.Addr().(*net.TCPAddr).Port
		}, "its port is taken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := homeserver.Options{Dir: t.TempDir(), Binaries: bin}
			tt.spoil(t, &o)
			s := open(t, o)
			err := s.Start(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v; want %q in it", err, tt.want)
			}
			if s.PID() != 0 {
				t.Error("a failed start left a process")
			}
		})
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	bin := homeservertest.ForTest(t)
	bin.Dendrite = filepath.Join(t.TempDir(), "sleeper")
	write(t, bin.Dendrite, "#!/bin/sh\nexec sleep 60\n")
	s := open(t, homeserver.Options{Dir: t.TempDir(), Binaries: bin})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := s.Start(ctx); err == nil || time.Since(began) > soon {
		t.Errorf("start gave %v after %v", err, time.Since(began))
	}
	if s.PID() != 0 {
		t.Error("the sleeper lives")
	}
}

func TestFaultyOptionsAreAllNamed(t *testing.T) {
	_, err := homeserver.New(homeserver.Options{ServerName: "no good", Port: -1})
	for _, want := range []string{"server name", "port", "folder", "binaries"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want %q in it", err, want)
		}
	}
}

func TestAFolderKeepsItsName(t *testing.T) {
	o := homeserver.Options{Dir: t.TempDir(), Binaries: homeservertest.ForTest(t), ServerName: "example.org"}
	if got := open(t, o).ServerName(); got != "example.org" {
		t.Errorf("server name is %q", got)
	}
	o.ServerName = "other.example.org"
	if _, err := homeserver.New(o); err == nil {
		t.Error("a folder changed hands")
	}
}

func TestFreePort(t *testing.T) {
	port, err := homeserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatalf("port %d is not free: %v", port, err)
	}
	_ = l.Close()
}

// crashEnv makes TestCrashingParent the parent that crashes.
const crashEnv = "MOOTHALL_TEST_CRASH_DIR"

func TestCrashingParent(t *testing.T) {
	dir := os.Getenv(crashEnv)
	if dir == "" {
		return // TestChildDiesWithItsParent runs it
	}
	s := homeservertest.Start(t, homeserver.Options{Dir: dir})
	fmt.Fprintf(os.Stdout, "\nPID %d\n", s.PID())
	time.Sleep(time.Minute)
}

func TestChildDiesWithItsParent(t *testing.T) {
	if _, err := os.Stat("/proc/self/statm"); err != nil {
		t.Skip("only Linux promises this")
	}
	homeservertest.ForTest(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrashingParent$", "-test.v")
	cmd.Env = append(os.Environ(), crashEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "PID %d", &pid)
	}
	if pid == 0 {
		t.Fatal("the parent started no homeserver")
	}
	time.Sleep(500 * time.Millisecond) // long enough for an idle thread to go
	if !alive(pid) {
		t.Fatal("the homeserver died before its parent")
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	wait(t, "the homeserver dies with its parent", func() bool { return !alive(pid) })

	// And the folder is free again.
	s := open(t, homeserver.Options{Dir: dir, Binaries: homeservertest.ForTest(t)})
	start(t, s)
}

// open makes s and sees to its end.
func open(t *testing.T, o homeserver.Options) *homeserver.Server {
	t.Helper()
	s, err := homeserver.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return s
}

func start(t *testing.T, s *homeserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	if err := s.Start(ctx); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(s.URL() + "/_matrix/client/versions")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct{ Versions []string }
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || len(got.Versions) == 0 {
		t.Fatalf("versions %v, error %v", got.Versions, err)
	}
}

func whoami(t *testing.T, s *homeserver.Server, token string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+"/_matrix/client/v3/account/whoami", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		UserID string `json:"user_id"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	return got.UserID
}

// alive is false for a process that is gone or waits to be collected.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func wait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// write makes an executable file.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}
