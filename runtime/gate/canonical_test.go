package gate_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gowebpki/jcs"

	"moothall/runtime/capability"
	"moothall/runtime/gate"
)

// vectors are the reference's, each with a JSON text that has the form. No form:
// it must be refused. What only a JavaScript value can be is no JSON here.
var vectors = []struct{ name, in, form, hash string }{
	{`empty object`, ` { } `, `{}`, "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"},
	{`null`, `null`, `null`, "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b"},
	{`string`, `"hi"`, `"hi"`, "b49177e05868b7af8e82a644c1ce20e521af46497adeaffe861d294d9b4bb75e"},
	{`empty string`, `""`, `""`, "12ae32cb1ec02d01eda3581b127c1fee3b0dc53572ed6baf239721a03d82e126"},
	{`key order`, `{"b":{"d":[1,2],"c":"x"},"a":1}`, `{"a":1,"b":{"c":"x","d":[1,2]}}`, "a95fdc35fefe0ab6b786e722697fdf8b341e7c2d6e7683ee4810738a63d28449"},
	{`neg zero`, `{"n":-0}`, `{"n":0}`, "f3013f933b9fb80ab6d995e7ad9da36f683837ba1d81e950c943d40111eac2f0"},
	{`1e-7`, `{"n":0.0000001}`, `{"n":1e-7}`, "747d6d23b64d1b2d579adb832b44de31c91c875bbef7a8e397f5d183a746b54b"},
	{`0.1+0.2`, `{"n":0.3000000000000000444}`, `{"n":0.30000000000000004}`, "1d8a8e16d9ee625f1fb5ef505413efa212cc020b272ed0f9b3d3d81acf593fde"},
	{`max safe`, `{"n":9007199254740991}`, `{"n":9007199254740991}`, "e1da48c6a6089f06ecb4e0a2259e658e3786b2420f52baccdf929ec6460d7b41"},
	{`123456789012345680000`, `{"n":1.2345678901234568e20}`, `{"n":123456789012345680000}`, "372d7411af0dd3df2fd7d82a78dc0d0293ab61da9e4dee382c06b465ea859e93"},
	{`5e-324`, `{"n":4.94e-324}`, `{"n":5e-324}`, "cf4df7d2834198d284947133d3ec7a66f3d94e8d447cac6a0783324211b36d43"},
	{`html chars`, `{"s":"\u003ca href=\"x\">\u0026'</a>"}`, `{"s":"<a href=\"x\">&'</a>"}`, "a3599a4c8851c961ac8f305e04773e7edc242e8ebdfa64dfcd94b669c121502f"},
	{`control`, `{"s":"\u0008\u0009\u000a\u000c\u000d\u0001\u001F\u007f"}`, "{\"s\":\"\\b\\t\\n\\f\\r\\u0001\\u001f\x7f\"}", "1b21e9fd01225a72cba6747f49210c98e0af3d55ab6c7ada5a41e67a74379dd1"},
	{`lone surrogate`, `{"s":"\ud800x"}`, "", ""},
	{`slash`, `{"s":"a\/b\\c"}`, `{"s":"a/b\\c"}`, "b689cf546967355f696d593f39a1c56c2fae09fea9f9175a1d8d8a5e81517ca8"},
	{`utf16 key order`, `{"a":3,"A":4,"1":5,"":6,"\ufb33":1,"\ud83d\ude00":2}`, "{\"\":6,\"1\":5,\"A\":4,\"a\":3,\"\U0001f600\":2,\"\ufb33\":1}", "900a5aba5cced8293f9439d88be0889f302a75f6070db10ffa2005165abbc8e3"},
	{`undefined in array`, `{"a":[1,null,2]}`, `{"a":[1,null,2]}`, "26bc150a8aceea6f585b351983c98e2460b12a2b1f60f4e0678a7148737d697a"},
	{`nested arrays`, `[[1,[2]],[]]`, `[[1,[2]],[]]`, "c04a3e03c3a2f76c4061e861d9e7e836f7adffa7c2ba7212bcd9c5a18fa51e1e"},
	{`null proto`, `{"b":1,"a":2}`, `{"a":2,"b":1}`, "d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772"},
	{`shared non-circular ref`, `[{"x":1},{"x":1}]`, `[{"x":1},{"x":1}]`, "aa36417ba1dc8446e96286be19248ef0da432d7a28dc507a839872ca29b9034c"},
	{`Buffer (has toJSON)`, `{"type":"Buffer","data":[1,2]}`, `{"data":[1,2],"type":"Buffer"}`, "96e102aa7de71030b6ad4c02a80e4f81615f775d6d2bc0a70ae54273eebc62b0"},
	{`sparse array`, `[1,,3]`, "", ""},
	{`Map`, `new Map()`, "", ""},
	{`Set`, `new Set()`, "", ""},
	{`Uint8Array`, `<00>`, "", ""},
	{`RegExp`, `/x/`, "", ""},
	{`function in array`, `[()=>1]`, "", ""},
	{`symbol value`, `{"a":Symbol()}`, "", ""},
	{`NaN`, `NaN`, "", ""},
	{`Infinity`, `{"n":Infinity}`, "", ""},
	{`toJSON undefined`, `undefined`, "", ""},
	{`invalid date`, `{"d": null}`, `{"d":null}`, "780e1b18e0904b2686e7e68ae54ea50056ef4e5667be2a918485704234516280"},
	{`catalog digest ids`, `["a","b"]`, `["a","b"]`, "0473ef2dc0d324ab659d3580c1134e9d812035905c4781fdd6d529b0c6860e13"},
	{`symbol KEY ignored`, `{"a":1}`, `{"a":1}`, "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"},
}

func TestR157KeyOrderDoesNotMatter(t *testing.T) {
	same, _ := gate.Canonical([]byte(`{"b":[1,2],"a":"x"}`))
	for in, want := range map[string]bool{
		`{"a":"x","b":[1,2]}`: true,
		`{"a":"x","b":[2,1]}`: false,
		`{"a":"y","b":[1,2]}`: false,
	} {
		got, err := gate.Canonical([]byte(in))
		if err != nil || bytes.Equal(got, same) != want {
			t.Errorf("%s gives %s (%v)", in, got, err)
		}
	}
}

func TestR160CanonicalVectors(t *testing.T) {
	for _, tt := range vectors {
		t.Run(tt.name, func(t *testing.T) {
			got, err := gate.Encode([]byte(tt.in))
			if tt.form == "" {
				if err == nil {
					t.Fatalf("gave %s", got)
				}
				return
			}
			if err != nil || string(got) != tt.form || gate.HashOf(got) != tt.hash {
				t.Fatalf("got %s %s (%v); want %s %s", got, gate.HashOf(got), err, tt.form, tt.hash)
			}
		})
	}
}

// The door takes all of them but the integer that a neighbour could be taken for.
func TestR160CanonicalAtTheDoor(t *testing.T) {
	for _, tt := range vectors {
		got, err := gate.Canonical([]byte(tt.in))
		if tt.form == "" || tt.name == "123456789012345680000" {
			if err == nil {
				t.Errorf("%s: gave %s", tt.name, got)
			}
			continue
		}
		if err != nil || string(got) != tt.form {
			t.Errorf("%s: got %s (%v)", tt.name, got, err)
		}
	}
}

func TestR159CanonicalRefuses(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, tt := range map[string]struct{ in, err string }{
		"nothing":                  {"", "is not valid JSON"},
		"spaces":                   {"  ", "is not valid JSON"},
		"two values":               {"1 2", "is not valid JSON"},
		"two values, comma":        {"1,2", "is not valid JSON"},
		"brackets turned":          {"1],[2", "is not valid JSON"},
		"two objects":              {"{}{}", "is not valid JSON"},
		"an open object":           {`{"a":1`, "is not valid JSON"},
		"a repeated key":           {`{"a":1,"a":2}`, "is not valid JSON"},
		"a repeated key, escaped":  {`{"a":1,"\u0061":2}`, "is not valid JSON"},
		"a repeated key, inside":   {`[{"b":{"a":1,"a":1}}]`, "is not valid JSON"},
		"2^53+1":                   {"9007199254740993", "survive"},
		"-(2^53+1)":                {`{"n":-9007199254740993}`, "survive"},
		"2^53+2 as a float":        {"9007199254740994.0", "survive"},
		"a big integer":            {"123456789012345680000", "survive"},
		"a hundred digits":         {strings.Repeat("9", 100), "survive"},
		"too big a float":          {"1e400", "is not valid JSON"},
		"not UTF-8":                {"\"\xff\"", "is not valid UTF-8"},
		"a high surrogate alone":   {`"\ud800"`, "is not valid JSON"},
		"a low surrogate alone":    {`"\udc00"`, "is not valid JSON"},
		"surrogates turned":        {`"\udc00\ud800"`, "is not valid JSON"},
		"a surrogate key":          {`{"\ud800":1}`, "is not valid JSON"},
		"too deep":                 {deep(65), "nested"},
		"far too deep":             {deep(100_000), "nested"},
		"too large":                {`"` + strings.Repeat("a", 256<<10) + `"`, "256 KiB"},
		"a trailing comma":         {`[1,]`, "is not valid JSON"},
		"a leading zero":           {`01`, "is not valid JSON"},
		"a raw control character":  {"\"\x01\"", "is not valid JSON"},
		"a mark before everything": {"\ufeff{}", "is not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gate.Canonical([]byte(tt.in))
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("got %.40s, %v; want an error with %q", got, err, tt.err)
			}
			if len(tt.in) > 4 && strings.Contains(err.Error(), tt.in) {
				t.Error("the error repeats the input")
			}
		})
	}
}

func TestR160CanonicalAccepts(t *testing.T) {
	for in, want := range map[string]string{
		"9007199254740992":     "9007199254740992",
		"-9007199254740992":    "-9007199254740992",
		"1e21":                 "1e+21",
		"1.0":                  "1",
		"1E2":                  "100",
		"-0.0":                 "0",
		"true":                 "true",
		`"\u2028\ud83d\ude00"`: "\"\u2028\U0001F600\"",
		`"\u0000"`:             `"\u0000"`,
		strings.Repeat("[", 64) + strings.Repeat("]", 64): strings.Repeat("[", 64) + strings.Repeat("]", 64),
	} {
		got, err := gate.Canonical([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s (%v); want %s", in, got, err, want)
		}
	}
}

// What is accepted has a form that is JSON, means the same and is its own form.
func FuzzCanonical(f *testing.F) {
	for _, v := range vectors {
		f.Add([]byte(v.in))
	}
	for _, s := range []string{"1,2", "1],[2", "9007199254740993.0", "1e20", `{"\u0061":1,"a":2}`, "-0", `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		form, err := gate.Canonical(in)
		if err != nil {
			return
		}
		again, err := gate.Canonical(form)
		if err != nil || !bytes.Equal(form, again) {
			t.Fatalf("%q has form %s, which has form %s (%v)", in, form, again, err)
		}
		var a, b any
		if err := json.Unmarshal(in, &a); err != nil {
			t.Fatalf("%q was accepted: %v", in, err)
		}
		if err := json.Unmarshal(form, &b); err != nil {
			t.Fatalf("form %q is no JSON: %v", form, err)
		}
		if !reflect.DeepEqual(a, b) { // by ==: -0 is 0
			t.Fatalf("%q became %s", in, form)
		}
	})
}

// The digest is taken of canonical JSON, whatever is in the fields.
func TestDigestIsOfCanonicalJSON(t *testing.T) {
	odd := "\"\\<>&\u2028\n\x01é😀\ufb33"
	a := gate.Approval{
		ID: odd, CapabilityID: "a.b", Revision: "r", Surface: capability.SurfaceAgent, Risk: capability.RiskLow, SideEffect: capability.SideEffectRead,
		Actor:        capability.Actor{ID: odd, Kind: capability.KindUser, Name: "n", Attributes: map[string]string{odd: "1", "": odd, "\ufb33": "2", "😀": "3"}},
		Origin:       gate.Origin{Place: "p", Lane: odd, Ref: "r"},
		Requirements: gate.Requirements{Types: []string{odd, "b"}, Groups: []string{}, Quorum: 2},
		Input:        json.RawMessage(`{"a":1}`), ExpiresAt: time.UnixMilli(5), RequestedAt: time.UnixMilli(3),
		Reasons: []string{odd, "r"}, ExecutionID: odd, CorrelationID: "c",
	}
	b, err := json.Marshal(map[string]any{
		"id": a.ID, "capability": a.CapabilityID, "revision": a.Revision, "surface": a.Surface, "input": a.Input,
		"actor":  map[string]any{"id": a.Actor.ID, "kind": a.Actor.Kind, "name": a.Actor.Name, "attributes": a.Actor.Attributes},
		"origin": map[string]any{"place": "p", "lane": odd, "ref": "r"}, "side_effect": a.SideEffect, "risk": a.Risk,
		"requirements": a.Requirements, "expires": 5, "requested": 3, "reasons": a.Reasons, "execution": odd, "correlation": "c",
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := jcs.Transform(b)
	if err != nil {
		t.Fatal(err)
	}
	got, err := gate.Digest(a)
	if err != nil || got != gate.HashOf(c) {
		t.Fatalf("got %s, %v; want the hash of %s", got, err, c)
	}
	a.Input = json.RawMessage(`{"a":1},"origin":{}`)
	if _, err := gate.Digest(a); err == nil {
		t.Fatal("an input that is no JSON was digested")
	}
}
