package policy

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limit bounds one argument. At least one bound is required.
type Limit struct {
	// Pointer says where the argument is, as a JSON Pointer (RFC 6901): /amount,
	// /people/0/name. A limit on every element of a list is not expressible.
	Pointer string
	// Min and Max bound a number, both inclusive, compared as 64-bit floats, which
	// is what canonical JSON holds.
	Min, Max *float64
	// MaxLength bounds a string in characters. Zero: no bound.
	MaxLength int
	// OneOf lists the values that are allowed, of any JSON type. Nil: no bound.
	OneOf []any
	// Optional lets the argument be absent. It does not let it be null or of
	// another type.
	Optional bool
}

// Arguments gives the rule's answer when an argument is out of its bounds. An
// argument that is missing, or whose type does not fit its bounds, is denied
// whatever the answer is: nobody should be asked to approve what was not
// measured. It cannot be asked in discovery, where there are no arguments.
func Arguments(r Rule, limits ...Limit) (Policy, error) {
	var faults []error
	if len(limits) == 0 {
		faults = append(faults, errors.New("has no limits"))
	}
	if slices.Contains(r.Phases, PhaseDiscovery) {
		faults = append(faults, errors.New("cannot see arguments in discovery"))
	}
	checks := make([]limit, 0, len(limits))
	for _, l := range limits {
		c, err := l.compile()
		if err != nil {
			faults = append(faults, fmt.Errorf("limit on %q: %w", l.Pointer, err))
		}
		checks = append(checks, c)
	}
	return r.decide(errors.Join(faults...), func(q Request) Decision {
		var input any
		if err := json.Unmarshal(q.Input, &input); err != nil {
			return Decision{Stance: StanceDeny, Code: "unmeasured", Message: "The arguments cannot be read."}
		}
		out := Decision{Stance: StanceAllow}
		for _, c := range checks {
			switch fits, problem := c.allows(input); {
			case problem != "":
				return Decision{Stance: StanceDeny, Code: "unmeasured", Message: "The argument " + c.pointer + " " + problem + "."}
			case !fits && out.Stance == StanceAllow:
				out = r.Answer
				out.Metadata = map[string]string{"argument": c.pointer}
				maps.Copy(out.Metadata, r.Answer.Metadata)
			}
		}
		return out
	})
}

// limit is a Limit made ready.
type limit struct {
	pointer    string
	path       []string
	min, max   float64
	number     bool
	length     int
	oneOf      []any
	listed     bool
	mayBeUnset bool
}

func (l Limit) compile() (limit, error) {
	c := limit{pointer: l.Pointer, min: math.Inf(-1), max: math.Inf(1), length: l.MaxLength, listed: l.OneOf != nil, mayBeUnset: l.Optional}
	var faults []error
	var err error
	if c.path, err = parsePointer(l.Pointer); err != nil {
		faults = append(faults, err)
	}
	for _, b := range []struct{ from, to *float64 }{{l.Min, &c.min}, {l.Max, &c.max}} {
		if b.from == nil {
			continue
		}
		if math.IsNaN(*b.from) || math.IsInf(*b.from, 0) {
			faults = append(faults, errors.New("a bound is no finite number"))
		}
		*b.to, c.number = *b.from, true
	}
	switch {
	case c.min > c.max:
		faults = append(faults, errors.New("min is above max"))
	case l.MaxLength < 0:
		faults = append(faults, errors.New("the length is negative"))
	case c.listed && len(l.OneOf) == 0:
		faults = append(faults, errors.New("lists no value"))
	case c.number && l.MaxLength > 0:
		faults = append(faults, errors.New("nothing is a number and a string"))
	case !c.number && l.MaxLength == 0 && !c.listed:
		faults = append(faults, errors.New("has no bound"))
	}
	if c.listed {
		// As the input is read, so that 1 and 1.0 are the same.
		raw, err := json.Marshal(l.OneOf)
		if err == nil {
			err = json.Unmarshal(raw, &c.oneOf)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("a listed value is not JSON: %w", err))
		}
	}
	return c, errors.Join(faults...)
}

// allows reports whether the argument is within its bounds; the problem, which
// may be shown, says why this cannot be told. It never quotes a value.
func (c limit) allows(input any) (fits bool, problem string) {
	v, found := lookup(input, c.path)
	if !found {
		if c.mayBeUnset {
			return true, ""
		}
		return false, "is missing"
	}
	if c.number {
		n, ok := v.(float64)
		if !ok {
			return false, "is not a number"
		}
		if n < c.min || n > c.max {
			return false, ""
		}
	}
	if c.length > 0 {
		s, ok := v.(string)
		if !ok {
			return false, "is not a text"
		}
		if utf8.RuneCountInString(s) > c.length {
			return false, ""
		}
	}
	return !c.listed || slices.ContainsFunc(c.oneOf, func(w any) bool { return reflect.DeepEqual(v, w) }), ""
}

func parsePointer(p string) ([]string, error) {
	if p == "" {
		return nil, nil
	}
	if p[0] != '/' {
		return nil, errors.New("a JSON Pointer begins with /")
	}
	path := strings.Split(p[1:], "/")
	for i, s := range path {
		for j := 0; j < len(s); j++ {
			if s[j] == '~' && (j+1 == len(s) || (s[j+1] != '0' && s[j+1] != '1')) {
				return nil, errors.New("a ~ in a JSON Pointer is written ~0")
			}
		}
		path[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return path, nil
}

func lookup(v any, path []string) (any, bool) {
	for _, key := range path {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[key]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || strconv.Itoa(i) != key || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}
