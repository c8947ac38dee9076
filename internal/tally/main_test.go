package main

import (
	"strings"
	"testing"
)

func TestTally(t *testing.T) {
	in := strings.Join([]string{
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    x.go:1: engine: postgres\n"}`,
		`{"Action":"output","Package":"p","Test":"TestA","Output":"    x.go:2: quiet\n"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestB","Output":"    x.go:3: loud\n"}`,
		`{"Action":"fail","Package":"p","Test":"TestB"}`,
		`{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}`,
		`{"Action":"fail","Package":"p"}`,
		`not json`,
	}, "\n")
	var out strings.Builder
	ta := newTally(&out)
	if err := ta.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	ta.summary("dendrite")
	got := out.String()
	for _, want := range []string{"loud", "FAIL\tp\t0.1s", "not json", "1 passed, 1 failed, 0 skipped", "postgres: ran 1", "sqlite:   NOT RUN\n", "dendrite: NOT RUN (required)"} {
		if !strings.Contains(got, want) {
			t.Errorf("output lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "quiet") {
		t.Error("the output of a test that passed is shown")
	}
	if m := ta.missing("dendrite,postgres"); len(m) != 1 || m[0] != "dendrite" {
		t.Errorf("missing %q", m)
	}
}
