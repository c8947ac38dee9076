package gate

import (
	"encoding/json"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"moothall/runtime/capability"
)

// What tests in gate_test look at from inside.
var (
	Backoff  = backoff
	Scan     = scan
	Survives = survives
)

// MaxDepth is the bound on nesting.
const MaxDepth = maxDepth

// Encode gives the RFC 8785 form without the bounds.
func Encode(raw []byte) ([]byte, error) {
	v, err := parse(raw, maxDepth, nil)
	if err != nil {
		return nil, err
	}
	return write(nil, v), nil
}

// CheckThatPanics checks something against a schema whose check panics.
func CheckThatPanics() []capability.Issue {
	s := &jsonschema.Schema{Format: &jsonschema.Format{Name: "x", Validate: func(any) error { panic("hunter2") }}}
	return check(s, json.RawMessage(`"x"`))
}
