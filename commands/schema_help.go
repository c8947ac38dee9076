package commands

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"moothall/internal/visible"
)

// Limits on what help repeats of a tool's own words.
const (
	maxDescription = 400 // bytes of a description
	maxHelpLines   = 40  // arguments listed
	maxExamples    = 8   // required arguments in the example
)

// SchemaHelp tells a person how to run the tool id: what it does, its arguments
// (those required first) with kind and description, and a line to try. The text
// is plain, ends without a line break, and shows hidden characters.
func SchemaHelp(prefix, id, description string, schema []byte) string {
	s := readShape(schema)
	var b strings.Builder
	b.WriteString(shown(id))
	if text := sentence(description); text != "" {
		b.WriteString(": " + text)
	}
	names := slices.Clone(s.required)
	for _, name := range s.names {
		if !slices.Contains(s.required, name) {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0 && s.open:
		b.WriteString("\nIt does not say which arguments it takes.")
	case len(names) == 0:
		b.WriteString("\nIt takes no arguments.")
	default:
		b.WriteString("\nArguments:")
	}
	for i, name := range names {
		if i == maxHelpLines {
			fmt.Fprintf(&b, "\n  (+%d more)", len(names)-i)
			break
		}
		b.WriteString("\n  " + s.argumentLine(name))
	}
	b.WriteString("\nExample: " + s.example(prefix, id))
	return b.String()
}

func (s *shape) argumentLine(name string) string {
	k := s.kinds[name]
	need := "optional"
	if slices.Contains(s.required, name) {
		need = "required"
	}
	line := fmt.Sprintf("%s (%s, %s)", shown(name), k.words(), need)
	if text := sentence(k.description); text != "" {
		line += ": " + text
	}
	if len(k.enum) > 0 {
		line += " [one of " + listed(k.enum) + "]"
	}
	return line
}

// sentence is a description on one line.
func sentence(text string) string {
	if len(text) > 10*maxDescription {
		text = strings.ToValidUTF8(text[:10*maxDescription], "")
	}
	return visible.Text(strings.Join(strings.Fields(text), " "), maxDescription)
}

// words names the kind for a person.
func (k kind) words() string {
	var out []string
	for _, t := range k.types {
		switch t {
		case "string":
			out = append(out, "text")
		case "integer":
			out = append(out, "whole number")
		case "number":
			out = append(out, "number")
		case "boolean":
			out = append(out, "yes or no")
		case "array":
			out = append(out, "list")
		case "object":
			out = append(out, "JSON object")
		}
	}
	if len(out) == 0 {
		return "any"
	}
	return strings.Join(out, " or ")
}

// example is a line to try: every required argument, or the first one there is.
func (s *shape) example(prefix, id string) string {
	line := prefix + "run " + shown(id)
	names := s.required
	if len(names) == 0 && len(s.names) > 0 {
		names = s.names[:1]
	}
	if slices.ContainsFunc(names, func(n string) bool { return keyLength(n+"=") != len(n) || n == "" }) {
		return line + " {…}" // a name that can only be written as JSON
	}
	for _, name := range names[:min(len(names), maxExamples)] {
		line += " " + shown(name) + "=" + s.kinds[name].example()
	}
	return line
}

func (k kind) example() string {
	switch {
	case len(k.enum) > 0:
		return exampleText(shown(k.enum[0]))
	case k.is("string"), len(k.types) == 0:
		return `"some text"`
	case k.is("integer"), k.is("number"):
		return "1"
	case k.is("boolean"):
		return "yes"
	case k.is("array") && (slices.Contains(k.items, "integer") || slices.Contains(k.items, "number")):
		return "1,2"
	case k.is("array") && slices.Contains(k.items, "boolean"):
		return "yes,no"
	case k.is("array") && slices.Contains(k.items, "object"):
		return "[{}]"
	case k.is("array"):
		return "one,two"
	case k.is("object"):
		return "{}"
	}
	return "null"
}

// exampleText quotes s where it needs it.
func exampleText(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-") == "" {
		return s
	}
	return strconv.Quote(s)
}
