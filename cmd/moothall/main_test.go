package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"moothall/cmd/moothall/config"
	"moothall/internal/pgtest"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts, and the example files")

func TestMain(m *testing.M) {
	testscript.Main(withPostgres{m}, map[string]func(){"moothall": main, botProgram: botMain})
}

// withPostgres stops the database server that the tests shared.
type withPostgres struct{ *testing.M }

func (m withPostgres) Run() int { return pgtest.Main(m.M) }

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"mode": cmdMode},
	})
}

// cmdMode is `mode 0600 FILE...`: each file has exactly that mode.
func cmdMode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: mode 0600 file...")
	}
	for _, file := range args[1:] {
		info, err := os.Stat(ts.MkAbs(file))
		ts.Check(err)
		if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
			ts.Fatalf("%s has mode %s, want %s", file, got, args[0])
		}
	}
}

// The example files at the top level are what the binary prints.
func TestExampleFiles(t *testing.T) {
	for file, args := range map[string][]string{
		"../../config.example.yaml":                  {"config", "example"},
		"../../appservice-registration.yaml.example": {"registration", "--example"},
	} {
		var stdout, stderr strings.Builder
		if code := run(t.Context(), args, nil, &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Fatalf("%v: exit %d: %s", args, code, stderr.String())
		}
		if *update {
			if err := os.WriteFile(file, []byte(stdout.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != stdout.String() {
			t.Errorf("%s is not what `moothall %s` prints; go test ./cmd/moothall -update rewrites it", file, strings.Join(args, " "))
		}
	}
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name    string
		args    []string
		environ []string
		code    int
		stdout  string
		stderr  string
	}{
		{"nothing", nil, nil, exitUsage, "", "--help lists"},
		{"unknown command", []string{"sevre"}, nil, exitUsage, "", "sevre"},
		{"unknown flag", []string{"version", "--verbose"}, nil, exitUsage, "", "--verbose"},
		{"help", []string{"--help"}, nil, exitOK, "registration", ""},
		{"help of a command", []string{"init", "--help"}, nil, exitOK, "--homeserver", ""},
		{"version", []string{"version"}, nil, exitOK, "moothall ", ""},
		{"configuration from the environment", []string{"config", "check"}, []string{"MOOTHALL_CONFIG=/nowhere/m.yaml"}, exitConfig, "", "/nowhere/m.yaml: no such file"},
		{"the flag wins", []string{"-c", "/nowhere/n.yaml", "config", "check"}, []string{"MOOTHALL_CONFIG=/nowhere/m.yaml"}, exitConfig, "", "/nowhere/n.yaml: no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			code := run(t.Context(), tt.args, tt.environ, &stdout, &stderr)
			if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("exit %d, want %d\nstdout: %s\nstderr: %s", code, tt.code, stdout.String(), stderr.String())
			}
			if tt.code == exitOK && stderr.Len() > 0 || tt.code != exitOK && stdout.Len() > 0 {
				t.Errorf("output on the wrong stream\nstdout: %s\nstderr: %s", stdout.String(), stderr.String())
			}
		})
	}
}

func TestTokens(t *testing.T) {
	seen := map[rune]bool{}
	for range 50 {
		token := newToken()
		if len(token) != 64 || strings.Trim(token, tokenLetters) != "" {
			t.Fatalf("token has %d characters, or others than letters and digits", len(token))
		}
		for _, r := range token {
			seen[r] = true
		}
	}
	if len(seen) != len(tokenLetters) {
		t.Errorf("3200 random characters use only %d of %d letters", len(seen), len(tokenLetters))
	}
}

func TestWriteNewNeverReplaces(t *testing.T) {
	dir := t.TempDir() + "/deep/er"
	path := dir + "/file"
	for i, write := range []func(string, []byte) (bool, error){writeNew, writeNew, writeExclusive} {
		made, err := write(path, fmt.Appendf(nil, "%d", i))
		if err != nil || made != (i == 0) {
			t.Errorf("write %d: made %v, %v", i, made, err)
		}
	}
	if got, _ := os.ReadFile(path); string(got) != "0" {
		t.Errorf("holds %q", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("want the file alone, found %v, %v", left, err)
	}
}

func TestKeysReadBack(t *testing.T) {
	dir := t.TempDir()
	for name, generate := range map[string]func() ([]byte, error){"signing": newSigningKey, "secrets": newSecretsKey} {
		data, err := generate()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := writeNew(dir+"/"+name, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := isSigningKey(dir + "/signing"); err != nil {
		t.Error(err)
	}
	if err := isSecretsKey(dir + "/secrets"); err != nil {
		t.Error(err)
	}
	if err := isSigningKey(dir + "/secrets"); err == nil {
		t.Error("a P-256 key was taken for signing")
	}
	if err := isSecretsKey(dir + "/signing"); err == nil {
		t.Error("an Ed25519 key was taken for secrets")
	}
}

func TestExitCodes(t *testing.T) {
	wrong := &config.Error{Problems: []config.Problem{{File: "config.yaml", Line: 3, Key: "a.b", Text: "is wrong"}}}
	tests := []struct {
		err  error
		code int
		says string
	}{
		{fmt.Errorf("x"), exitFailure, "moothall: x\n"},
		{errReported, exitFailure, ""},
		{wrong, exitConfig, "config.yaml:3: a.b: is wrong\n"},
		{withCode(exitToken, fmt.Errorf("refused")), exitToken, "moothall: refused\n"},
		{fmt.Errorf("serve: %w", withCode(exitDatabase, fmt.Errorf("newer"))), exitDatabase, "moothall: serve: newer\n"},
	}
	for _, tt := range tests {
		var stderr strings.Builder
		if code := fail(&stderr, tt.err); code != tt.code || stderr.String() != tt.says {
			t.Errorf("%v: exit %d %q, want %d %q", tt.err, code, stderr.String(), tt.code, tt.says)
		}
	}
}
