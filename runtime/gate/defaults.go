package gate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// filler puts the defaults of an input schema in the place of what was left out.
// It is made once from the schema; most tools have none.
type filler struct {
	props map[string]*filler
	items *filler
	value json.RawMessage // the default of this place
}

// errFilled is input that the defaults make too large.
var errFilled = errors.New("is larger than 256 KiB with the tool's defaults")

// fillerOf looks at properties, items and local definitions, which is where a
// default has one meaning; below anyOf and the like it is only a remark.
func fillerOf(schema json.RawMessage) *filler {
	if len(schema) == 0 {
		return nil
	}
	root, ok := decoded(schema).(map[string]any)
	if !ok {
		return nil
	}
	return (&fillerMaker{root: root}).at(root, 0)
}

type fillerMaker struct {
	root  map[string]any
	nodes int
}

const (
	maxFillerDepth = 32
	maxFillerNodes = 10_000
)

func (m *fillerMaker) at(node map[string]any, depth int) *filler {
	if m.nodes++; depth > maxFillerDepth || m.nodes > maxFillerNodes {
		return nil
	}
	f := &filler{}
	target := m.follow(node)
	for _, at := range []map[string]any{target, node} {
		if v, ok := at["default"]; ok {
			f.value, _ = json.Marshal(v) // it was decoded from JSON
		}
	}
	if props, ok := target["properties"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(props)) { // in order: what is beyond the bound is always the same
			sub, ok := props[name].(map[string]any)
			if !ok {
				continue
			}
			if c := m.at(sub, depth+1); c != nil {
				if f.props == nil {
					f.props = make(map[string]*filler)
				}
				f.props[name] = c
			}
		}
	}
	if items, ok := target["items"].(map[string]any); ok {
		if c := m.at(items, depth+1); c != nil && (c.props != nil || c.items != nil) {
			f.items = c
		}
	}
	if f.props == nil && f.items == nil && f.value == nil {
		return nil
	}
	return f
}

// follow resolves one reference within the document.
func (m *fillerMaker) follow(node map[string]any) map[string]any {
	ref, ok := node["$ref"].(string)
	if !ok || !strings.HasPrefix(ref, "#/") {
		return node
	}
	at := any(m.root)
	for part := range strings.SplitSeq(ref[2:], "/") {
		obj, ok := at.(map[string]any)
		if !ok {
			return node
		}
		at = obj[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	if target, ok := at.(map[string]any); ok {
		return target
	}
	return node
}

// apply gives v with the defaults in it, within room bytes of them. v is changed.
func (f *filler) apply(v any, room *int) (any, error) {
	switch v := v.(type) {
	case map[string]any:
		for name, c := range f.props {
			have, ok := v[name]
			if !ok {
				if c.value == nil {
					continue
				}
				if *room -= len(c.value) + len(name); *room < 0 {
					return nil, errFilled
				}
				have = decoded(c.value)
			}
			filled, err := c.apply(have, room)
			if err != nil {
				return nil, err
			}
			v[name] = filled
		}
	case []any:
		if f.items == nil {
			break
		}
		for i := range v {
			filled, err := f.items.apply(v[i], room)
			if err != nil {
				return nil, err
			}
			v[i] = filled
		}
	}
	return v, nil
}

// fill gives canonical input with the defaults in it, canonical again, and its
// tree.
func (f *filler) fill(c json.RawMessage) (json.RawMessage, any, error) {
	room := maxInput
	v, err := f.apply(decoded(c), &room)
	if err != nil {
		return nil, nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, nil, errJSON
	}
	return canonical(b)
}

// decoded decodes JSON that is known to be well formed, numbers as they are.
func decoded(b json.RawMessage) any {
	dec := json.NewDecoder(strings.NewReader(string(b)))
	dec.UseNumber()
	var v any
	_ = dec.Decode(&v)
	return v
}
