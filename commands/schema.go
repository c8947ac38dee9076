package commands

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Limits on the schemas read here; a tool from elsewhere may send any.
const (
	maxSchema     = 256 << 10 // bytes; a larger schema says nothing
	maxProperties = 1000
	maxEnum       = 100
)

// shape is what a person needs to know of a JSON Schema: the names at its top,
// and the kind of each. What it cannot tell stays open, for the engine's own
// validation to decide.
type shape struct {
	names    []string // in the schema's order
	kinds    map[string]kind
	required []string
	open     bool // takes names it does not list
}

// kind is the type of one argument.
type kind struct {
	types       []string // JSON Schema types; empty means any
	items       []string // the types of an array's entries
	enum        []string // the text values allowed; empty means any
	description string
}

func (k kind) is(t string) bool { return slices.Contains(k.types, t) }

// rawSchema is the part of JSON Schema that is read.
type rawSchema struct {
	Ref         string          `json:"$ref"`
	Type        json.RawMessage `json:"type"`
	Enum        json.RawMessage `json:"enum"`
	Const       json.RawMessage `json:"const"`
	AnyOf       json.RawMessage `json:"anyOf"`
	OneOf       json.RawMessage `json:"oneOf"`
	Items       json.RawMessage `json:"items"`
	Description json.RawMessage `json:"description"`
	Properties  json.RawMessage `json:"properties"`
	Required    json.RawMessage `json:"required"`
	Additional  json.RawMessage `json:"additionalProperties"`
	Defs        json.RawMessage `json:"$defs"`
	Definitions json.RawMessage `json:"definitions"`
}

// readShape reads a schema. One that is missing, broken or no object takes any
// name.
func readShape(schema []byte) shape {
	s := shape{kinds: make(map[string]kind), open: true}
	var top rawSchema
	if len(schema) > maxSchema || json.Unmarshal(schema, &top) != nil {
		return s
	}
	defs := make(map[string]rawSchema)
	for _, raw := range []json.RawMessage{top.Definitions, top.Defs} {
		var some map[string]json.RawMessage
		if json.Unmarshal(raw, &some) != nil {
			continue
		}
		for name, one := range some {
			var def rawSchema
			if json.Unmarshal(one, &def) == nil {
				defs[name] = def
			}
		}
	}
	s.readProperties(top.Properties, defs)
	extra := strings.TrimSpace(string(top.Additional))
	s.open = len(s.names) == 0 && extra != "false" && extra != `{"not":{}}` ||
		extra == "true" || strings.HasPrefix(extra, "{") && extra != `{"not":{}}`
	var required []string
	if json.Unmarshal(top.Required, &required) == nil {
		for _, name := range required {
			if _, ok := s.kinds[name]; ok && !slices.Contains(s.required, name) {
				s.required = append(s.required, name)
			}
		}
	}
	return s
}

// readProperties keeps the order in which the schema lists its properties.
func (s *shape) readProperties(raw json.RawMessage, defs map[string]rawSchema) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return
	}
	for dec.More() && len(s.names) < maxProperties {
		token, err := dec.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return
		}
		if _, seen := s.kinds[name]; seen {
			continue
		}
		var one rawSchema
		_ = json.Unmarshal(value, &one) // true and false are schemas too: any kind
		s.names = append(s.names, name)
		s.kinds[name] = kindOf(one, defs)
	}
}

// kindOf reads one property: its own words, what it refers to, or what its
// alternatives allow; one level deep.
func kindOf(one rawSchema, defs map[string]rawSchema) kind {
	var k kind
	_ = json.Unmarshal(one.Description, &k.description)
	one = resolve(one, defs)
	k.add(one)
	if k.description == "" {
		_ = json.Unmarshal(one.Description, &k.description)
	}
	for _, raw := range []json.RawMessage{one.AnyOf, one.OneOf} {
		var either []rawSchema
		if json.Unmarshal(raw, &either) != nil {
			continue
		}
		for _, alt := range either[:min(len(either), maxEnum)] {
			k.add(resolve(alt, defs))
		}
	}
	return k
}

func resolve(one rawSchema, defs map[string]rawSchema) rawSchema {
	for _, prefix := range []string{"#/$defs/", "#/definitions/"} {
		if name, ok := strings.CutPrefix(one.Ref, prefix); ok {
			if def, ok := defs[name]; ok {
				return def
			}
		}
	}
	return one
}

func (k *kind) add(one rawSchema) {
	var single string
	var several []string
	if json.Unmarshal(one.Type, &single) == nil && single != "" {
		several = []string{single}
	} else if json.Unmarshal(one.Type, &several) != nil {
		several = nil
	}
	for _, t := range several {
		if !k.is(t) {
			k.types = append(k.types, t)
		}
	}
	var items rawSchema
	if json.Unmarshal(one.Items, &items) == nil {
		var entry kind
		items.Items = nil
		entry.add(items)
		k.items = append(k.items, entry.types...)
	}
	var values []json.RawMessage
	if json.Unmarshal(one.Enum, &values) != nil && len(one.Const) > 0 {
		values = []json.RawMessage{one.Const}
	}
	for _, v := range values[:min(len(values), maxEnum)] {
		var text string
		if len(v) > 0 && v[0] == '"' && json.Unmarshal(v, &text) == nil {
			k.enum = append(k.enum, text)
			if len(several) == 0 && !k.is("string") {
				k.types = append(k.types, "string")
			}
		}
	}
}
