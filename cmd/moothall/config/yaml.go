package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// readYAML walks the document and records each key that has a value. It
// descends only where keys are declared, so neither depth nor aliases in the
// file can make it work for long.
func (l *loader) readYAML(data []byte) {
	root, problem := document(data)
	if problem != nil {
		problem.File = l.path
		l.fail("", *problem)
		l.markFaulty("") // nothing is known to be missing
		return
	}
	if root != nil {
		l.walk(root, "")
	}
}

// document parses exactly one YAML document. A nil node is an empty document.
func document(data []byte) (root *yaml.Node, problem *Problem) {
	defer func() {
		if recover() != nil {
			root, problem = nil, &Problem{Text: "cannot be read as YAML"}
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntax(err)
	}
	if err := dec.Decode(new(yaml.Node)); err == nil {
		return nil, &Problem{Text: "holds more than one YAML document"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntax(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, &Problem{Text: "cannot be read as YAML"}
	}
	return doc.Content[0], nil
}

// syntax rewords a parser's error. Some of them quote the file, which may hold
// a token, so only the wordings known not to are repeated.
func syntax(err error) *Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	p := &Problem{Text: "is not valid YAML here"}
	if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(text); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	for _, safe := range []string{
		"mapping values are not allowed in this context",
		"did not find expected key",
		"did not find expected node content",
		"did not find expected ',' or ']'",
		"did not find expected ',' or '}'",
		"could not find expected ':'",
		"found character that cannot start any token",
		"found a tab character that violates indentation",
		"found unexpected end of stream",
		"found unknown escape character",
		"block sequence entries are not allowed in this context",
		"control characters are not allowed",
	} {
		if text == safe {
			p.Text = "is not valid YAML near this line: " + safe
		}
	}
	return p
}

func (l *loader) walk(node *yaml.Node, prefix string) {
	if isNull(node) {
		return // no keys: the same as no section
	}
	if node = target(node); node.Kind != yaml.MappingNode {
		l.fail("", Problem{File: l.path, Line: node.Line, Key: prefix, Text: "must hold keys, one a line, as in `moothall config example`"})
		l.markFaulty(prefix)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, v := node.Content[i], node.Content[i+1]
		if k.Kind != yaml.ScalarNode {
			l.fail("", Problem{File: l.path, Line: k.Line, Key: prefix, Text: "holds something that is no key"})
			continue
		}
		label := name(prefix, k.Value)
		if first, twice := seen[k.Value]; twice {
			l.fail("", Problem{File: l.path, Line: k.Line, Key: label, Text: fmt.Sprintf("is given twice, first in line %d", first)})
			continue
		}
		seen[k.Value] = k.Line
		l.entry(prefix, label, k, v)
	}
}

// entry takes one key of a section: a subsection, a declared key, the file
// form of a secret, or a mistake.
func (l *loader) entry(prefix, label string, k, v *yaml.Node) {
	base, isFile := strings.CutSuffix(label, fileSuffix)
	known, secret := l.key(label), l.key(base)
	switch {
	case strings.Contains(k.Value, "."):
		l.unknown(label, k, "; write sections as levels, not with dots")
	case isSection(label):
		l.lines[label] = k.Line
		l.walk(v, label)
	case known != nil:
		l.record(known, label, k, v, false)
	case isFile && secret != nil && secret.secret():
		l.record(secret, label, k, v, true)
	default:
		l.unknown(label, k, meant(l.guess(prefix, label, k.Value)))
	}
}

func (l *loader) unknown(label string, k *yaml.Node, hint string) {
	l.fail("", Problem{File: l.path, Line: k.Line, Key: label, Text: "is no key of Moothall" + hint})
}

func isSection(label string) bool {
	return slices.ContainsFunc(sections(), func(s section) bool { return s.name == label })
}

// guess is what an unknown key was probably meant to be, or "".
func (l *loader) guess(prefix, label, key string) string {
	candidates := l.names()
	if prefix == "" {
		candidates = nil
		for _, s := range sections() {
			candidates = append(candidates, s.name)
		}
	}
	if near := nearest(label, candidates); near != "" {
		return near
	}
	for _, n := range l.names() { // the right key in the wrong section
		if leaf(n) == key {
			return n
		}
	}
	return ""
}

// record keeps the value of a key after checking its YAML type.
func (l *loader) record(k *key, label string, kn, v *yaml.Node, inFile bool) {
	v = target(v)
	if isNull(v) || k.secret() && v.Kind == yaml.ScalarNode && v.Value == "" {
		l.lines[k.name] = kn.Line // as if it were not there
		return
	}
	if other, twice := l.set[k.name]; twice {
		l.fail(k.name, Problem{File: l.path, Line: kn.Line, Key: label, Text: fmt.Sprintf("is given as well as %s in line %d: keep one", other.label, other.line)})
		return
	}
	texts, problem := scalars(k, v)
	if problem != "" {
		l.fail(k.name, Problem{File: l.path, Line: kn.Line, Key: label, Text: problem})
		return
	}
	l.set[k.name] = setting{texts: texts, file: l.path, line: kn.Line, label: label, inFile: inFile}
}

// scalars is the value of a node as text, if its type fits the key.
func scalars(k *key, v *yaml.Node) ([]string, string) {
	switch k.kind() {
	case "list":
		if v.Kind != yaml.SequenceNode {
			return nil, `must be a list, like ["a", "b"]`
		}
		var out []string
		for _, item := range v.Content {
			if item = target(item); item.Kind != yaml.ScalarNode || item.ShortTag() != "!!str" {
				return nil, "must be a list of texts (in quotes if need be)"
			}
			out = append(out, item.Value)
		}
		return out, ""
	case "number":
		if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!int" {
			return nil, "must be a whole number"
		}
	case "duration":
		if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!str" {
			return nil, "must be a duration above zero with its unit, like 30s or 24h"
		}
	default:
		if v.Kind != yaml.ScalarNode || v.ShortTag() != "!!str" {
			return nil, "must be one text (in quotes if it looks like something else)"
		}
	}
	return []string{v.Value}, ""
}

// target follows one alias; YAML has no alias of an alias.
func target(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func isNull(n *yaml.Node) bool {
	n = target(n)
	return n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}
