package config

import (
	"bytes"
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// setting is a value somebody gave for a key, not yet checked.
type setting struct {
	texts  []string // one, unless the key is a list
	file   string   // "environment", or the configuration's path
	line   int      // 0 in the environment
	label  string   // the key or variable as the operator wrote it
	inFile bool     // texts[0] names a file that holds the value
}

// where is where the setting was made, for [Config.Where].
func (s *setting) where(file string) string {
	if s.file == environment {
		return s.label + " in the environment"
	}
	return fmt.Sprintf("%s in line %d of %s", s.label, s.line, file)
}

// loader gathers settings from both sources, then fills a Config.
type loader struct {
	path, dir string // the configuration as given; its folder, absolute
	keys      []key
	problems  []Problem

	set    map[string]setting // by key name
	faulty map[string]bool    // keys whose fault is already reported
	lines  map[string]int     // line of each section, and of each key without a value, that is there
}

func newLoader(path, dir string) *loader {
	return &loader{
		path: path, dir: dir, keys: declared(),
		set: map[string]setting{}, faulty: map[string]bool{}, lines: map[string]int{},
	}
}

func (l *loader) names() []string {
	out := make([]string, len(l.keys))
	for i, k := range l.keys {
		out[i] = k.name
	}
	return out
}

func (l *loader) key(keyName string) *key {
	for i := range l.keys {
		if l.keys[i].name == keyName {
			return &l.keys[i]
		}
	}
	return nil
}

// fail keeps a problem and marks the key, so that it is not also called missing.
func (l *loader) fail(keyName string, p Problem) {
	if keyName != "" {
		l.faulty[keyName] = true
	}
	l.problems = append(l.problems, p)
}

// markFaulty marks every key of a section, or with "" of the file.
func (l *loader) markFaulty(prefix string) {
	for _, k := range l.keys {
		if prefix == "" || strings.HasPrefix(k.name, prefix+".") {
			l.faulty[k.name] = true
		}
	}
}

// report keeps a problem of a key at the place the key was set, or, when it
// was not, where it should be.
func (l *loader) report(keyName, text string) {
	if s, ok := l.set[keyName]; ok {
		l.fail(keyName, Problem{File: s.file, Line: s.line, Key: s.label, Text: text})
		return
	}
	l.fail(keyName, Problem{File: l.path, Line: l.lineFor(keyName), Key: keyName, Text: text})
}

// lineFor is where keyName stands without a value, else the line of the
// innermost section of it that is there, else 1.
func (l *loader) lineFor(keyName string) int {
	for s := keyName; ; s = sectionOf(s) {
		if line, ok := l.lines[s]; ok {
			return line
		}
		if !strings.Contains(s, ".") {
			return 1
		}
	}
}

// fill stores every value, and every default, in c.
func (l *loader) fill(c *Config) {
	for i := range l.keys {
		k := &l.keys[i]
		s, ok := l.set[k.name]
		switch {
		case l.faulty[k.name]:
		case !ok && k.required:
			l.report(k.name, "is required (or "+envName(k.name)+")")
		case !ok:
			// A default that does not pass its own check is caught by a test.
			_ = k.put(c, l.fallback(k), l.dir)
		default:
			if problem := l.resolve(k, &s); problem != "" {
				l.report(k.name, problem)
			} else if problem := k.put(c, s.texts, l.dir); problem != "" {
				l.report(k.name, problem)
			}
			c.where[k.name] = s.where(c.File)
		}
	}
	slices.SortStableFunc(l.problems, func(a, b Problem) int {
		if d := cmp.Compare(source(a), source(b)); d != 0 {
			return d
		}
		return cmp.Compare(a.Line, b.Line)
	})
}

func source(p Problem) int {
	if p.File == environment {
		return 1
	}
	return 0
}

func (l *loader) fallback(k *key) []string {
	if k.kind() == "list" {
		return splitList(k.def)
	}
	return []string{k.def}
}

// resolve reads the file a secret is kept in, if that is what was given.
func (l *loader) resolve(k *key, s *setting) string {
	if !s.inFile {
		return ""
	}
	path := s.texts[0]
	if path == "" {
		return "must name a file"
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.dir, path)
	}
	data, err := readLimited(path)
	if err != nil {
		if why := cause(err); why != absent {
			return "names a file that " + why
		}
		return "names a file that does not exist"
	}
	data = bytes.TrimSpace(data)
	if len(data) == 0 && !k.maybeEmpty {
		return "names a file that is empty"
	}
	s.texts = []string{string(data)}
	return ""
}
