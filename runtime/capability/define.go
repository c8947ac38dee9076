package capability

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/jsonschema-go/jsonschema"
)

// Define makes a capability from a typed handler. The schemas are inferred from
// In and Out: exported fields with their json names, `omitempty` or a pointer
// making one optional, and a `jsonschema:"…"` tag as its description. In must be
// a struct. Faults are reported by [NewRegistry], all at once.
func Define[In, Out any](id string, meta Meta, h func(ctx context.Context, rt *Context, in In) (Out, error)) *Capability {
	c := &Capability{ID: id, Meta: meta}
	var err error
	if c.InputSchema, err = schemaOf[In](); err != nil {
		c.problem = fmt.Errorf("input type: %w", err)
	}
	if c.OutputSchema, err = schemaOf[Out](); err != nil {
		c.problem = errors.Join(c.problem, fmt.Errorf("output type: %w", err))
	}
	if h == nil {
		c.problem = errors.Join(c.problem, errors.New("has no handler"))
	}
	c.handler = func(ctx context.Context, rt *Context, input json.RawMessage) (json.RawMessage, error) {
		var in In
		dec := json.NewDecoder(bytes.NewReader(input))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return nil, fmt.Errorf("decode validated input: %w", err)
		}
		if _, err := dec.Token(); !errors.Is(err, io.EOF) {
			return nil, errors.New("decode validated input: more than one value")
		}
		out, err := h(ctx, rt, in)
		if err != nil {
			return nil, err
		}
		b, err := json.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("encode output: %w", err)
		}
		return b, nil
	}
	return c
}

func schemaOf[T any]() (json.RawMessage, error) {
	s, err := jsonschema.For[T](nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}
