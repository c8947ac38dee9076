// Command conformance says which test holds which numbered promise.
//
// docs/conformance.tsv lists the numbers: R001 and RZ1 are promises of the gate
// and what belongs to it, C001 of rooms, identity, turns and plugins, T01 are
// cases that went wrong elsewhere. Each has a status: kept; changed (kept in the
// way that the line says); later (with what it comes); n-a (does not apply). A
// test or subtest whose name contains a number claims it.
//
// The command runs the tests, or reads the output of `go test -json` from a file
// (-from FILE), and writes docs/conformance.md. A number that is kept or changed
// and has no passing test, or a failing one, makes it fail; so does a test that
// claims a number which is not in the list.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
)

const (
	table  = "docs/conformance.tsv"
	report = "docs/conformance.md"
	module = "moothall/"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("conformance", flag.ContinueOnError)
	from := flags.String("from", "", "read the output of go test -json from this file, run nothing")
	if err := flags.Parse(args); err != nil {
		return err
	}
	raw, err := os.ReadFile(table)
	if err != nil {
		return fmt.Errorf("read the list (run this at the top of the module): %w", err)
	}
	promises, err := parse(string(raw))
	if err != nil {
		return err
	}
	results, err := collect(ctx, *from)
	if err != nil {
		return err
	}
	unknown := claim(promises, results)
	if err := os.WriteFile(report, []byte(render(promises)), 0o600); err != nil {
		return err
	}
	return tell(out, promises, unknown)
}

// promise is one line of the list, with the tests that claim it.
type promise struct {
	number, status, why string
	passed, failed      []string
}

// held reports whether p needs no test or has one, and none that fails.
func (p *promise) held() bool {
	if len(p.failed) > 0 {
		return false
	}
	return len(p.passed) > 0 || p.status == "later" || p.status == "n-a"
}

func parse(text string) ([]*promise, error) {
	var out []*promise
	seen := map[string]bool{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(line, "\t")
		switch {
		case len(f) != 3 || strings.TrimSpace(f[2]) == "":
			return nil, fmt.Errorf("%s:%d: want number, status and why, with tabs between", table, n)
		case !slices.Contains([]string{"kept", "changed", "later", "n-a"}, f[1]):
			return nil, fmt.Errorf("%s:%d: there is no status %q", table, n, f[1])
		case !slices.Equal(numbersIn(f[0]), []string{f[0]}):
			return nil, fmt.Errorf("%s:%d: %q is no number", table, n, f[0])
		case seen[f[0]]:
			return nil, fmt.Errorf("%s:%d: %s stands there twice", table, n, f[0])
		}
		seen[f[0]] = true
		out = append(out, &promise{number: f[0], status: f[1], why: f[2]})
	}
	return out, nil
}

// result is the end of one test.
type result struct {
	pkg, name string
	passed    bool
}

// collect gives the ends of all tests; skipped ones are left out.
func collect(ctx context.Context, from string) (results []result, err error) {
	if from != "" {
		f, err := os.Open(from) //nolint:gosec // named on our own command line
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return read(f)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-tags", "goolm", "./runtime/...", "./bridge/...", "./commands/...",
		"./cmd/...", "./store/...", "./internal/visible")
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start go test: %w", err)
	}
	results, err = read(pipe)
	// A test that fails is told of under its number; others are for make test.
	if exit := cmd.Wait(); exit != nil && len(results) == 0 {
		err = errors.Join(err, fmt.Errorf("go test: %w", exit))
	}
	return results, err
}

func read(r io.Reader) ([]result, error) {
	var out []result
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		var ev struct{ Action, Package, Test string }
		// What is no JSON is what a test printed by itself.
		if json.Unmarshal([]byte(line), &ev) == nil && ev.Test != "" && (ev.Action == "pass" || ev.Action == "fail") {
			out = append(out, result{strings.TrimPrefix(ev.Package, module), ev.Test, ev.Action == "pass"})
		}
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// reNumber finds numbers that begin a word (Test, TestE2E and Fuzz stand before words)
// and do not go on with another digit.
var reNumber = regexp.MustCompile(`(?:^|[^A-Za-z0-9]|Test|TestE2E|Fuzz)((?:R\d{3}|RZ\d{1,2}|C\d{3}|T\d{2})+)(?:\D|$)`)

// reOne takes numbers apart that stand side by side, as in R037R038.
var reOne = regexp.MustCompile(`[A-Z]+\d+`)

func numbersIn(name string) []string {
	var out []string
	for {
		m := reNumber.FindStringSubmatchIndex(name)
		if m == nil {
			return out
		}
		out = append(out, reOne.FindAllString(name[m[2]:m[3]], -1)...)
		name = name[m[3]:]
	}
}

// claim gives each promise the tests that name it, and returns the claims of
// numbers that are not in the list. A test claims what its own name says, not
// what the test around it is called.
func claim(promises []*promise, results []result) (unknown []string) {
	byNumber := make(map[string]*promise, len(promises))
	for _, p := range promises {
		byNumber[p.number] = p
	}
	for _, r := range results {
		for _, n := range numbersIn(r.name[strings.LastIndex(r.name, "/")+1:]) {
			name := r.pkg + "." + r.name
			p, ok := byNumber[n]
			switch {
			case !ok:
				unknown = append(unknown, n+" ("+name+")")
			case r.passed:
				p.passed = append(p.passed, name)
			default:
				p.failed = append(p.failed, name)
			}
		}
	}
	for _, p := range promises {
		slices.Sort(p.passed)
		slices.Sort(p.failed)
		p.passed, p.failed = slices.Compact(p.passed), slices.Compact(p.failed)
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// mostNamed is how many tests of a number are named.
const mostNamed = 3

func (p *promise) tests() string {
	all := slices.Concat(p.failed, p.passed)
	if len(all) == 0 {
		if p.held() {
			return ""
		}
		return "**MISSING**"
	}
	var b strings.Builder
	for i, name := range all[:min(len(all), mostNamed)] {
		if i > 0 {
			b.WriteString("<br>")
		}
		b.WriteString("`" + strings.ReplaceAll(name, "|", "\\|") + "`")
	}
	if more := len(all) - mostNamed; more > 0 {
		fmt.Fprintf(&b, "<br>+ %d more", more)
	}
	return b.String()
}

func (p *promise) verdict() string {
	switch {
	case len(p.failed) > 0:
		return "**no**"
	case len(p.passed) > 0:
		return "yes"
	}
	return ""
}

func render(promises []*promise) string {
	var b strings.Builder
	b.WriteString(`# Promises and their tests

Written by ` + "`make conformance`" + ` from conformance.tsv and a test run; do not edit. R and RZ are
promises of the gate and what belongs to it, C of rooms, identity, turns and
plugins; T are cases that went wrong elsewhere. *kept*: as it says; *changed*: in
the way it says; *later*: with what it comes; *n-a*: does not apply here.

`)
	for _, status := range []string{"kept", "changed", "later", "n-a"} {
		n := 0
		for _, p := range promises {
			if p.status == status {
				n++
			}
		}
		fmt.Fprintf(&b, "- %s: %d\n", status, n)
	}
	b.WriteString("\n| number | status | what | tests | passed |\n|---|---|---|---|---|\n")
	for _, p := range promises {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", p.number, p.status, strings.ReplaceAll(p.why, "|", "\\|"), p.tests(), p.verdict())
	}
	return b.String()
}

// tell says on out what is not held.
func tell(out io.Writer, promises []*promise, unknown []string) error {
	held, open, wanting := 0, 0, 0
	for _, p := range promises {
		switch {
		case !p.held() && len(p.failed) > 0:
			wanting++
			_, _ = fmt.Fprintf(out, "FAILED   %s  %s\n", p.number, strings.Join(p.failed, ", "))
		case !p.held():
			wanting++
			_, _ = fmt.Fprintf(out, "MISSING  %s  %s\n", p.number, p.why)
		case len(p.passed) > 0:
			held++
		default:
			open++
		}
	}
	for _, u := range unknown {
		_, _ = fmt.Fprintf(out, "UNKNOWN  %s\n", u)
	}
	_, _ = fmt.Fprintf(out, "%d held, %d not held, %d for later or not applicable\n", held, wanting, open)
	if wanting > 0 || len(unknown) > 0 {
		return errors.New("not every promise is held by a test")
	}
	return nil
}
