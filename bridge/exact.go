package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
)

var errNotObject = errors.New("not a JSON object")

// exact reads the named fields of an object, each into its pointer. Names count
// to the letter. encoding/json alone takes "Sender" or "ſender" for "sender" as
// well, and a homeserver passes on keys it does not know: with it, a stranger's
// extra key would replace what the homeserver vouches for.
//
// A field that is missing, or null, is left as it is. Fields of the wrong type
// are reported together, after all others were read.
func exact(raw json.RawMessage, into map[string]any) error {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || m == nil {
		return errNotObject
	}
	var errs []error
	for name, p := range into {
		v, ok := m[name]
		if !ok {
			continue
		}
		if err := json.Unmarshal(v, p); err != nil {
			errs = append(errs, fmt.Errorf("field %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
