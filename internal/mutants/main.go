// Command mutants takes guards away, one at a time, and sees that the test which
// claims to hold each turns red. That is how a list of promises is believed.
//
// The guards are in guards.txt beside this file:
//
//	== name of the guard
//	file: runtime/gate/decide.go
//	test: ./runtime/gate TestDecide/R125
//	-- old text, as it stands in the file, exactly once
//	++ what takes its place
//
// Old and new text may run over several lines. The tree is not changed: the
// mutated file is laid over it for one build. A mutant that does not compile, a
// guard whose text is not found exactly once and a test that stays green are all
// failures. Command-line words select guards whose name contains one of them.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

const list = "internal/mutants/guards.txt"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// guard is one entry of the list.
type guard struct {
	name, file, pkg, test string
	old, new              string
}

func run(ctx context.Context, words []string, out io.Writer) error {
	raw, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("read the guards (run this at the top of the module): %w", err)
	}
	guards, err := parse(string(raw))
	if err != nil {
		return err
	}
	held, failed := 0, 0
	for _, g := range guards {
		if !selected(g, words) {
			continue
		}
		begin := time.Now()
		if err := try(ctx, g); err != nil {
			failed++
			_, _ = fmt.Fprintf(out, "FAIL  %s: %v\n", g.name, err)
			continue
		}
		held++
		_, _ = fmt.Fprintf(out, "held  %s (%s, %.1f s)\n", g.name, g.test, time.Since(begin).Seconds())
	}
	_, _ = fmt.Fprintf(out, "%d passed, %d failed\n", held, failed)
	if failed > 0 || held == 0 {
		return errors.New("not every guard is held by its test")
	}
	return nil
}

func selected(g guard, words []string) bool {
	for _, w := range words {
		if strings.Contains(g.name, w) {
			return true
		}
	}
	return len(words) == 0
}

// parse reads the list.
func parse(text string) ([]guard, error) {
	var out []guard
	for i, block := range strings.Split("\n"+text, "\n== ")[1:] {
		g, err := parseBlock(block)
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d (%s): %w", list, i+1, g.name, err)
		}
		out = append(out, g)
	}
	return out, nil
}

func parseBlock(block string) (g guard, err error) {
	name, rest, _ := strings.Cut(block, "\n")
	g.name = strings.TrimSpace(name)
	head, body, ok := strings.Cut("\n"+rest, "\n-- ")
	if !ok {
		return g, errors.New("no old text")
	}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "file":
			g.file = value
		case "test":
			g.pkg, g.test, _ = strings.Cut(value, " ")
		}
	}
	g.old, g.new, ok = strings.Cut(body, "\n++")
	if !ok {
		return g, errors.New("no new text")
	}
	g.new = strings.TrimRight(strings.TrimPrefix(g.new, " "), "\n")
	if g.file == "" || g.pkg == "" || g.test == "" || g.old == "" {
		return g, errors.New("file, test and old text are required")
	}
	return g, nil
}

// try reports nil when the guard's test is red without the guard.
func try(ctx context.Context, g guard) error {
	dir, err := os.MkdirTemp("", "moothall-mutant")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := lay(g, dir)
	if err != nil {
		return err
	}
	if out, err := goTest(ctx, overlay, g.pkg, "^$"); err != nil {
		return fmt.Errorf("the mutant does not compile:\n%s", out)
	}
	out, err := goTest(ctx, overlay, g.pkg, g.test)
	switch {
	case err == nil && strings.Contains(out, "no tests to run"):
		return fmt.Errorf("there is no test %s", g.test)
	case err == nil:
		return fmt.Errorf("%s stays green without it", g.test)
	case !strings.Contains(out, "--- FAIL") && !strings.Contains(out, "panic:"):
		return fmt.Errorf("%s did not run: %s", g.test, out)
	}
	return nil
}

// lay writes the mutated file and an overlay that puts it in place.
func lay(g guard, dir string) (overlay string, err error) {
	path, err := filepath.Abs(g.file)
	if err != nil {
		return "", err
	}
	src, err := os.ReadFile(path) //nolint:gosec // named in our own list
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(src), g.old); n != 1 {
		return "", fmt.Errorf("its text stands %d times in %s", n, g.file)
	}
	mutant := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(mutant, []byte(strings.Replace(string(src), g.old, g.new, 1)), 0o600); err != nil { //nolint:gosec // a file of our own in a folder of our own
		return "", err
	}
	b, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutant}})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}

// goTest runs one test; a mutant may hang, so it is bounded.
func goTest(ctx context.Context, overlay, pkg, test string) (string, error) {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout=90s", "-run", test, pkg) //nolint:gosec // from our own list
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}
