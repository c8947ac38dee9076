package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// clean makes free text storable: PostgreSQL refuses NUL and what is no UTF-8,
// SQLite would keep it, and a stranger's event must stop neither. It is for
// texts people read, never for ids that are compared.
func clean(s string) string {
	if plain(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func plain(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }

// errNotText is an input that cannot be kept byte for byte.
var errNotText = errors.New("input is not UTF-8 text")

// exact gives the bytes of an input that must come back as they are.
func exact(raw json.RawMessage) (string, error) {
	if s := string(raw); plain(s) {
		return s, nil
	}
	return "", errNotText
}

// toJSON encodes v without the escaping of <, > and &, so that JSON inside v
// (the output of a tool) keeps its bytes.
func toJSON(v any) (string, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", fmt.Errorf("encode %T: %w", v, err)
	}
	return clean(strings.TrimSuffix(buf.String(), "\n")), nil
}

// fromJSON decodes text into v; empty text leaves v alone.
func fromJSON(text string, v any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

// rawJSON is the other way of a stored raw message; empty is nil.
func rawJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}
