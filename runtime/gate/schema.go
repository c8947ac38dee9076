package gate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"moothall/runtime/capability"
)

// maxIssues bounds what is said about one bad input.
const maxIssues = 20

// Bounds on schemas, which may come from strangers.
const (
	maxSchema      = 1 << 20 // bytes
	maxSchemaDepth = 256
)

// compile prepares a schema. References to other documents are refused, and so
// is what the library cannot cope with.
func compile(id string, schema json.RawMessage) (s *jsonschema.Schema, err error) {
	if len(schema) == 0 {
		return nil, nil //nolint:nilnil // no schema means no check
	}
	defer func() {
		if recover() != nil {
			s, err = nil, fmt.Errorf("%q: schema cannot be compiled", id)
		}
	}()
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("%q: schema is larger than 1 MiB", id)
	}
	if scan(schema, maxSchemaDepth, tame) != nil {
		return nil, fmt.Errorf("%q: schema is not JSON, is nested more than %d levels deep or has an enormous number", id, maxSchemaDepth)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("%q: schema is not JSON: %w", id, err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	url := "moothall:" + id
	if err := c.AddResource(url, doc); err != nil {
		return nil, fmt.Errorf("%q: schema: %w", id, err)
	}
	s, err = c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("%q: schema: %w", id, err)
	}
	return s, nil
}

// tame refuses numbers that are cheap to write and dear to compare: the library
// works with exact fractions, and 1e-999999 has a million digits.
func tame(n string) error {
	const most = 400 // digits, and the size of the exponent
	if len(n) > most {
		return errNumber
	}
	if i := strings.IndexAny(n, "eE"); i >= 0 {
		if e, err := strconv.Atoi(n[i+1:]); err != nil || e > most || e < -most {
			return errNumber
		}
	}
	return nil
}

var errNumber = errors.New("has an enormous number")

type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references to other documents are not allowed")
}

// check validates b against s and lists what is wrong, without the values. What
// the library cannot cope with is not valid.
func check(s *jsonschema.Schema, b json.RawMessage) []capability.Issue {
	if s == nil {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return []capability.Issue{{Message: errJSON.Error()}}
	}
	return checkTree(s, v)
}

// checkTree is [check] of what was decoded, which it does not change.
func checkTree(s *jsonschema.Schema, v any) (issues []capability.Issue) {
	if s == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			issues = []capability.Issue{{Message: "cannot be checked against the tool's schema"}}
		}
	}()
	err := s.Validate(v)
	if err == nil {
		return nil
	}
	ve, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []capability.Issue{{Message: "is not valid"}}
	}
	var out []capability.Issue
	leaves(ve, &out)
	if len(out) == 0 {
		out = append(out, capability.Issue{Message: "is not valid"})
	}
	return out
}

func leaves(e *jsonschema.ValidationError, out *[]capability.Issue) {
	if len(*out) >= maxIssues {
		return
	}
	if len(e.Causes) > 0 {
		for _, c := range e.Causes {
			leaves(c, out)
		}
		return
	}
	path := ""
	if len(e.InstanceLocation) > 0 {
		path = "/" + strings.Join(e.InstanceLocation, "/")
	}
	*out = append(*out, capability.Issue{Path: path, Message: say(e.ErrorKind)})
}

// say words a fault without echoing the value that was sent.
func say(k jsonschema.ErrorKind) string {
	switch k := k.(type) {
	case *kind.Type:
		return fmt.Sprintf("must be %s, not %s", strings.Join(k.Want, " or "), k.Got)
	case *kind.Required:
		return "lacks " + strings.Join(k.Missing, ", ")
	case *kind.AdditionalProperties:
		return "has arguments that the tool does not know"
	case *kind.Enum:
		return fmt.Sprintf("must be one of %v", k.Want)
	case *kind.Const:
		return fmt.Sprintf("must be %v", k.Want)
	case *kind.MinLength:
		return fmt.Sprintf("must have at least %d characters", k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("must have at most %d characters", k.Want)
	case *kind.Pattern:
		return "does not have the right form (" + k.Want + ")"
	case *kind.Format:
		return "must be a valid " + k.Want
	case *kind.Minimum:
		return "must be at least " + k.Want.RatString()
	case *kind.Maximum:
		return "must be at most " + k.Want.RatString()
	case *kind.ExclusiveMinimum:
		return "must be more than " + k.Want.RatString()
	case *kind.ExclusiveMaximum:
		return "must be less than " + k.Want.RatString()
	case *kind.MinItems:
		return fmt.Sprintf("must have at least %d items", k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("must have at most %d items", k.Want)
	}
	return "is not valid"
}
