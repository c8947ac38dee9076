// Command tally runs `go test -json` with its arguments, shows Go's own result
// line of each package and the output of what failed, and ends with one line for
// each engine: how many tests ran on it, or NOT RUN.
//
// A test says that it runs on an engine by logging "engine: NAME"; the helpers
// that start engines do. An engine named in MOOTHALL_REQUIRE that ran no test
// makes the run fail, as does any failing test.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

// engines in the order they are told of.
func engines() []string { return []string{"sqlite", "postgres", "dendrite"} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Getenv("MOOTHALL_REQUIRE"), os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "tally:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, require string, out io.Writer) error {
	for name := range strings.SplitSeq(require, ",") {
		if name != "" && !slices.Contains(engines(), strings.TrimSpace(name)) {
			return fmt.Errorf("MOOTHALL_REQUIRE names %q; there are %s", name, strings.Join(engines(), ", "))
		}
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // our own Makefile's arguments
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("read go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	t := newTally(out)
	readErr := t.read(pipe)
	testErr := cmd.Wait()
	t.summary(require)
	switch missing := t.missing(require); {
	case testErr != nil:
		return fmt.Errorf("tests failed: %w", testErr)
	case readErr != nil:
		return fmt.Errorf("read go test: %w", readErr)
	case len(missing) > 0:
		return errors.New("required but not run: " + strings.Join(missing, ", "))
	}
	return nil
}

// event is one line of go test -json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

type tally struct {
	out    io.Writer
	output map[string][]string // by package and test, until it is known to have passed
	ran    map[string]map[string]bool
	counts map[string]int
}

func newTally(out io.Writer) *tally {
	t := &tally{out: out, output: map[string][]string{}, ran: map[string]map[string]bool{}, counts: map[string]int{}}
	for _, e := range engines() {
		t.ran[e] = map[string]bool{}
	}
	return t
}

func (t *tally) read(r io.Reader) error {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var e event
		if json.Unmarshal(s.Bytes(), &e) != nil {
			t.print(s.Text() + "\n") // a build failure, say
			continue
		}
		t.add(e)
	}
	return s.Err()
}

func (t *tally) print(s string) { _, _ = io.WriteString(t.out, s) }

func (t *tally) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		t.print(e.Output)
	case "output":
		t.note(e)
		if e.Test == "" {
			if resultLine(e.Output) {
				t.print(e.Output)
				return
			}
			if e.Output == "PASS\n" {
				return
			}
		}
		t.output[key] = append(t.output[key], e.Output)
	case "pass", "skip", "fail":
		if e.Test != "" {
			t.counts[e.Action]++
		}
		if e.Action == "fail" {
			t.print(strings.Join(t.output[key], ""))
		}
		delete(t.output, key)
	}
}

// resultLine: what go test prints of a package as a whole.
func resultLine(s string) bool {
	for _, p := range []string{"ok  \t", "FAIL\t", "---", "?   \t", "\tmoothall", "coverage:"} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func (t *tally) note(e event) {
	if e.Test == "" {
		return
	}
	for _, name := range engines() {
		if strings.Contains(e.Output, "engine: "+name) {
			t.ran[name][e.Package+" "+e.Test] = true
		}
	}
}

func (t *tally) missing(require string) []string {
	var out []string
	for _, e := range engines() {
		if len(t.ran[e]) == 0 && slices.Contains(strings.Split(require, ","), e) {
			out = append(out, e)
		}
	}
	return out
}

func (t *tally) summary(require string) {
	t.print(fmt.Sprintf("\n%d passed, %d failed, %d skipped\n", t.counts["pass"], t.counts["fail"], t.counts["skip"]))
	for _, e := range engines() {
		line := fmt.Sprintf("%-9s ran %d", e+":", len(t.ran[e]))
		if len(t.ran[e]) == 0 {
			line = fmt.Sprintf("%-9s NOT RUN", e+":")
			if slices.Contains(strings.Split(require, ","), e) {
				line += " (required)"
			}
		}
		t.print(line + "\n")
	}
}
