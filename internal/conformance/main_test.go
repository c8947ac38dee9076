package main

import (
	"slices"
	"strings"
	"testing"
)

func TestNumbersInNames(t *testing.T) {
	for name, want := range map[string][]string{
		"TestR157KeyOrderDoesNotMatter": {"R157"},
		"R079_R089_allow_and_deny":      {"R079", "R089"},
		"TestR037RZ7T01Concealment":     {"R037", "RZ7", "T01"},
		"TestE2EC133Stop":               {"C133"},
		"TestRZ7PoliciesGetCopies":      {"RZ7"},
		"RZ13_a_negative_window":        {"RZ13"},
		"T01":                           {"T01"},
		"FuzzC018Transaction":           {"C018"},
		"TestRuling10Attributes":        nil,
		"R1570":                         nil,
		"ERR123":                        nil,
		"XR123":                         nil,
		"R12":                           nil,
	} {
		if got := numbersIn(name); !slices.Equal(got, want) {
			t.Errorf("%s: %v; want %v", name, got, want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	promises, err := parse("# a comment\nR001\tkept\tone\nR002\tchanged\ttwo\nR003\tkept\tthree\nR004\tlater\twith something\nR005\tn-a\tno\nR006\tkept\tskipped\n")
	if err != nil {
		t.Fatal(err)
	}
	results, err := read(strings.NewReader(strings.Join([]string{
		`{"Action":"run","Package":"moothall/a","Test":"TestR001"}`,
		`{"Action":"pass","Package":"moothall/a","Test":"TestR001"}`,
		`{"Action":"pass","Package":"moothall/a","Test":"TestR001/plain"}`,
		`{"Action":"pass","Package":"moothall/a","Test":"TestX/R002_yes"}`,
		`{"Action":"fail","Package":"moothall/a","Test":"TestX/R002_no"}`,
		`{"Action":"pass","Package":"moothall/a","Test":"TestX/R999"}`,
		`{"Action":"skip","Package":"moothall/a","Test":"TestX/R006"}`,
		`{"Action":"pass","Package":"moothall/a"}`,
		`not JSON`,
	}, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	unknown := claim(promises, results)
	if !slices.Equal(unknown, []string{"R999 (a.TestX/R999)"}) {
		t.Errorf("unknown: %v", unknown)
	}
	if !slices.Equal(promises[0].passed, []string{"a.TestR001"}) {
		t.Errorf("R001: %v", promises[0].passed)
	}
	var out strings.Builder
	if err := tell(&out, promises, unknown); err == nil {
		t.Error("no error")
	}
	want := "FAILED   R002  a.TestX/R002_no\nMISSING  R003  three\nMISSING  R006  skipped\nUNKNOWN  R999 (a.TestX/R999)\n1 held, 3 not held, 2 for later or not applicable\n"
	if out.String() != want {
		t.Errorf("said\n%s\nwant\n%s", out.String(), want)
	}
	if md := render(promises); !strings.Contains(md, "| R003 | kept | three | **MISSING** |  |") || !strings.Contains(md, "| R001 | kept | one | `a.TestR001` | yes |") {
		t.Error(md)
	}
}

func TestListRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"two columns": "R001\tkept\n", "an unknown status": "R001\tmaybe\tx\n", "no number": "R1\tkept\tx\n",
		"a number twice": "R001\tkept\tx\nR001\tkept\tx\n", "no reason": "R001\tkept\t \n",
	} {
		if _, err := parse(text); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
