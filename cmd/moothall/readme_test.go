package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// docFolder is what the docs call the folder that commands run in.
const docFolder = "/srv/moothall"

// TestDocsRun runs every console block of the README and the docs: "$ moothall"
// lines are commands, the lines under one are exactly what it prints. The blocks
// of one document share a folder.
func TestDocsRun(t *testing.T) {
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, doc := range append(docs, "../../README.md") {
		raw, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(doc), func(t *testing.T) { ran += runConsole(t, string(raw)) })
	}
	if ran == 0 {
		t.Fatal("no commands found")
	}
}

func runConsole(t *testing.T, doc string) (ran int) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	for _, b := range strings.Split(doc, "```console\n")[1:] {
		body, _, _ := strings.Cut(b, "```")
		for _, c := range strings.Split("\n"+body, "\n$ ")[1:] {
			line, want, _ := strings.Cut(c, "\n")
			args, ok := strings.CutPrefix(line, "moothall ")
			if !ok {
				t.Errorf("%q cannot be run here: write it as a block of another kind", line)
				continue
			}
			var out, errs bytes.Buffer
			run(t.Context(), strings.Fields(args), nil, &out, &errs)
			got := strings.ReplaceAll(errs.String()+out.String(), dir, docFolder)
			if strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Errorf("$ %s\nprints\n%s\nthe document says\n%s", line, got, want)
			}
			ran++
		}
	}
	return ran
}

// TestNamedFilesExist: every file that a document names in backticks, with a
// folder or as a page, is there.
func TestNamedFilesExist(t *testing.T) {
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:docs|bridge|runtime|store|cmd|internal|commands|bench)/[A-Za-z0-9_./-]+|[A-Z]+\\.md|config\\.example\\.yaml)`")
	found := 0
	for _, doc := range append(docs, "../../README.md", "../../CONTRIBUTING.md") {
		if filepath.Base(doc) == "conformance.md" {
			continue // generated: it names tests
		}
		raw, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(raw), -1) {
			found++
			if _, err := os.Stat(filepath.Join("../..", m[1])); err != nil {
				t.Errorf("%s names %s, which is not there", filepath.Base(doc), m[1])
			}
		}
	}
	if found == 0 {
		t.Fatal("no file is named")
	}
}

// TestMakeTargetsExist: every `make x` that a document names is a target.
func TestMakeTargetsExist(t *testing.T) {
	mk, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:^|`)make ([a-z]+)")
	found := 0
	for _, doc := range append(docs, "../../README.md", "../../CONTRIBUTING.md") {
		raw, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(raw), -1) {
			found++
			if !strings.Contains(string(mk), "\n"+m[1]+":") {
				t.Errorf("%s names `make %s`, which the Makefile lacks", filepath.Base(doc), m[1])
			}
		}
	}
	if found == 0 {
		t.Fatal("no make command found")
	}
}
