package commands

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ToolInput reads the arguments of a tool. Text that starts with "{" is one JSON
// object and is taken as it is. Everything else is name=value, each value read as
// the JSON Schema says: text stays text, "123" included; numbers, yes and no are
// read; a list is written with commas or by naming it again; an object as JSON.
// One value without a name is taken for the only required argument, if there is
// just one. No text at all is an empty object.
//
// Missing arguments, and whatever else the schema asks, are for the engine to
// find. The only errors are *[InputError].
func ToolInput(rest string, schema []byte) (json.RawMessage, error) {
	if len(rest) > MaxInput {
		return nil, inputErrorf(0, "that is too long: arguments take at most %d bytes", MaxInput)
	}
	if !utf8.ValidString(rest) {
		return nil, inputErrorf(0, "the arguments are not valid UTF-8 text")
	}
	rest = strings.TrimSpace(rest)
	if strings.HasPrefix(rest, "{") {
		return wholeObject(rest)
	}
	args, err := Args(rest)
	if err != nil {
		return nil, err
	}
	in := input{shape: readShape(schema), values: make(map[string][]Arg)}
	for _, arg := range args {
		if err := in.add(arg, len(args)); err != nil {
			return nil, err
		}
	}
	return in.encode()
}

// wholeObject checks that text is one JSON object in which no name comes twice.
func wholeObject(text string) (json.RawMessage, error) {
	if err := checkJSON(text); err != nil {
		return nil, err
	}
	return json.RawMessage(text), nil
}

func checkJSON(text string) error {
	var anything json.RawMessage
	if err := json.Unmarshal([]byte(text), &anything); err != nil {
		return jsonError(text, err)
	}
	// Who reads the card and who runs the tool must not take different ones.
	if name, twice := repeatedName(text); twice {
		return inputErrorf(0, "%q is given twice in the JSON", shown(name))
	}
	return nil
}

func jsonError(text string, err error) error {
	hint := ""
	if strings.ContainsAny(text, "“”„«»") {
		hint = " (JSON needs plain quotes, \")"
	}
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) || int(syntax.Offset) > len(text) {
		return inputErrorf(0, "that is not valid JSON%s", hint)
	}
	end := max(0, int(syntax.Offset)-1)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	before := text[:end]
	line := 1 + strings.Count(before, "\n")
	column := 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	if strings.Contains(syntax.Error(), "unexpected end") {
		return inputErrorf(0, "the JSON ends too early: a closing bracket or quote is missing%s", hint)
	}
	place := fmt.Sprintf("character %d", column)
	if line > 1 {
		place = fmt.Sprintf("line %d, character %d", line, column)
	}
	return inputErrorf(column, "that is not valid JSON: something is wrong at %s%s", place, hint)
}

// repeatedName finds a name that comes twice in one object of valid JSON.
func repeatedName(text string) (string, bool) {
	type level struct {
		names map[string]bool // nil for an array
		key   bool            // a name is next
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var levels []level
	for {
		token, err := dec.Token()
		if err != nil {
			return "", false // io.EOF: text is valid
		}
		top := len(levels) - 1
		if name, ok := token.(string); ok && top >= 0 && levels[top].names != nil && levels[top].key {
			if levels[top].names[name] {
				return name, true
			}
			levels[top].names[name] = true
			levels[top].key = false
			continue
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: make(map[string]bool), key: true})
			continue
		case json.Delim('['):
			levels = append(levels, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:top]
			top--
		}
		if top >= 0 {
			levels[top].key = true // a value ended
		}
	}
}

// input collects what was given for each name, in the order given.
type input struct {
	shape  shape
	order  []string
	values map[string][]Arg
}

func (in *input) add(arg Arg, total int) error {
	name := arg.Key
	if name == "" {
		if len(in.shape.required) != 1 || total != 1 {
			return in.unnamed(arg)
		}
		name = in.shape.required[0]
	}
	k, known := in.shape.kinds[name]
	if !known && strings.Contains(name, ".") {
		return inputErrorf(arg.Column, "%q is a name within a name; write the arguments as JSON: {…}", shown(name))
	}
	if !known && !in.shape.open {
		if near, ok := Nearest(name, in.shape.names); ok {
			return inputErrorf(arg.Column, "no argument %q; did you mean %s?", shown(name), shown(near))
		}
		return inputErrorf(arg.Column, "no argument %q; %s", shown(name), in.shape.takes())
	}
	if len(in.values[name]) > 0 && !k.is("array") {
		return inputErrorf(arg.Column, "%s is given twice", shown(name))
	}
	if len(in.values[name]) == 0 {
		in.order = append(in.order, name)
	}
	in.values[name] = append(in.values[name], arg)
	return nil
}

// unnamed says what to do about a value that names no argument.
func (in *input) unnamed(arg Arg) error {
	if len(in.shape.names) == 0 && !in.shape.open {
		return inputErrorf(arg.Column, "it takes no arguments, but got %q", shown(arg.Value))
	}
	name := "name"
	if len(in.shape.required) > 0 {
		name = in.shape.required[0]
	} else if len(in.shape.names) > 0 {
		name = in.shape.names[0]
	}
	return inputErrorf(arg.Column, "%q has no name; write %s=%s, with quotes around a value that has spaces",
		shown(arg.Value), shown(name), `"…"`)
}

// takes lists the names there are.
func (s *shape) takes() string {
	if len(s.names) == 0 {
		return "it takes none"
	}
	return "there is " + listed(s.names)
}

// listed joins the first few words for a sentence.
func listed(words []string) string {
	const few = 12
	var out []string
	for _, w := range words[:min(len(words), few)] {
		out = append(out, shown(w))
	}
	text := strings.Join(out, ", ")
	if more := len(words) - few; more > 0 {
		text += fmt.Sprintf(" (+%d more)", more)
	}
	return text
}

func (in *input) encode() (json.RawMessage, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range in.order {
		if i > 0 {
			b.WriteByte(',')
		}
		value, err := in.shape.kinds[name].read(name, in.values[name])
		if err != nil {
			return nil, err
		}
		b.Write(quoteJSON(name))
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// read turns what was given for one name into JSON of its kind.
func (k kind) read(name string, given []Arg) (json.RawMessage, error) {
	if len(given) > 1 || k.is("array") && !k.is("string") {
		return k.readList(name, given)
	}
	arg := given[0]
	switch {
	case !arg.Quoted && arg.Value == "null" && k.is("null") && !k.is("string"):
		return json.RawMessage("null"), nil
	case k.is("string"):
		return k.readText(name, arg)
	case len(k.types) == 0:
		return readAny(arg)
	}
	return readValue(name, arg, k.types)
}

func (k kind) readText(name string, arg Arg) (json.RawMessage, error) {
	if len(k.enum) > 0 && !slices.Contains(k.enum, arg.Value) {
		if near, ok := Nearest(arg.Value, k.enum); ok {
			return nil, inputErrorf(arg.Column, "%s must be one of %s; did you mean %s?", shown(name), listed(k.enum), shown(near))
		}
		return nil, inputErrorf(arg.Column, "%s must be one of %s", shown(name), listed(k.enum))
	}
	return quoteJSON(arg.Value), nil
}

// readAny reads a value of which the schema says nothing: JSON if it looks like
// an object or a list, else text.
func readAny(arg Arg) (json.RawMessage, error) {
	if !arg.Quoted && (strings.HasPrefix(arg.Value, "{") || strings.HasPrefix(arg.Value, "[")) && checkJSON(arg.Value) == nil {
		return json.RawMessage(arg.Value), nil
	}
	return quoteJSON(arg.Value), nil
}

func (k kind) readList(name string, given []Arg) (json.RawMessage, error) {
	if len(given) == 1 && strings.HasPrefix(given[0].Value, "[") {
		if err := checkJSON(given[0].Value); err != nil {
			return nil, inputErrorf(given[0].Column, "%s: %s", shown(name), err.Error())
		}
		return json.RawMessage(given[0].Value), nil
	}
	entries := []json.RawMessage{}
	for _, arg := range given {
		if arg.Value == "" {
			continue
		}
		for piece := range strings.SplitSeq(arg.Value, ",") {
			entry := arg
			entry.Value = strings.TrimSpace(piece)
			value, err := readValue(name, entry, k.items)
			if err != nil {
				return nil, err
			}
			entries = append(entries, value)
		}
	}
	return slices.Concat(json.RawMessage("["), bytes.Join(toBytes(entries), []byte(",")), json.RawMessage("]")), nil
}

func toBytes(in []json.RawMessage) [][]byte {
	out := make([][]byte, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}

// readValue reads a value of the first of types that fits it. The error is that
// of the last one tried.
func readValue(name string, arg Arg, types []string) (json.RawMessage, error) {
	var failed error
	for _, t := range types {
		var value json.RawMessage
		var wrong string
		switch t {
		case "string":
			return quoteJSON(arg.Value), nil
		case "integer":
			value, wrong = readWhole(arg.Value)
		case "number":
			value, wrong = readNumber(arg.Value)
		case "boolean":
			value, wrong = readTruth(arg.Value)
		case "object":
			value, wrong = readObject(arg.Value)
		default: // null and array: nothing else to try
			continue
		}
		if wrong == "" {
			return value, nil
		}
		failed = inputErrorf(arg.Column, "%s %s", shown(name), wrong)
	}
	if failed != nil {
		return nil, failed
	}
	return readAny(arg)
}

// maxWhole is the largest whole number every JSON reader agrees on.
const maxWhole = 1<<53 - 1

func readWhole(s string) (value json.RawMessage, wrong string) {
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n > maxWhole || n < -maxWhole):
		return nil, "is too large a number"
	case err != nil:
		return nil, "must be a whole number"
	}
	return strconv.AppendInt(nil, n, 10), ""
}

func readNumber(s string) (value json.RawMessage, wrong string) {
	if strings.Trim(s, "0123456789+-.eE") != "" || !json.Valid([]byte(s)) {
		return nil, "must be a number"
	}
	if f, err := strconv.ParseFloat(s, 64); err != nil || math.IsInf(f, 0) {
		return nil, "is too large a number"
	}
	return json.RawMessage(s), ""
}

func readTruth(s string) (value json.RawMessage, wrong string) {
	switch strings.ToLower(s) {
	case "true", "yes":
		return json.RawMessage("true"), ""
	case "false", "no":
		return json.RawMessage("false"), ""
	}
	return nil, "must be yes or no"
}

func readObject(s string) (value json.RawMessage, wrong string) {
	if !strings.HasPrefix(s, "{") {
		return nil, "must be a JSON object: {…}"
	}
	if err := checkJSON(s); err != nil {
		return nil, "must be a JSON object, but " + err.Error()
	}
	return json.RawMessage(s), ""
}

// quoteJSON writes s as a JSON string, with no more escapes than it needs.
func quoteJSON(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		_, _ = io.WriteString(&b, `""`) // a string always encodes
	}
	return bytes.TrimSpace(b.Bytes())
}
