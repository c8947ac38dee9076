// Package arch holds the test of who may import whom.
package arch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "moothall/"

// layer is a part of the house and what of the house it may import besides
// itself. Imports only go down: to call upwards, declare an interface below and
// implement it above.
type layer struct {
	name string
	may  []string
}

// layers, top first. A name ending in "/" covers what is below it.
var layers = []layer{
	{"cmd/", []string{"bridge/", "commands", "runtime/", "store", "internal/"}},
	{"bench/", []string{"bridge/", "commands", "runtime/", "store", "internal/", "bench/"}},
	{"internal/demo/", []string{"internal/homeserver/"}},
	{"internal/homeserver/", nil},
	{"bridge/queue", nil},
	{"bridge/content", []string{"internal/visible"}},
	{"bridge/", []string{"commands", "runtime/gate", "runtime/policy", "runtime/capability", "internal/visible"}},
	{"commands", []string{"runtime/gate", "runtime/capability", "internal/visible"}},
	{"runtime/plugins/", []string{"runtime/capability", "internal/visible"}},
	{"runtime/gate/", []string{"runtime/policy", "runtime/capability", "internal/visible"}},
	{"runtime/policy", []string{"runtime/capability"}},
	{"runtime/capability", nil},
	{"store/", []string{"bridge/queue", "runtime/gate", "runtime/capability", "internal/pgtest"}},
	{"internal/", []string{}},
}

// outside says which packages of the house may import a library directly.
var outside = []struct {
	lib string
	by  []string
}{
	{"maunium.net/go/mautrix", []string{"bridge/", "cmd/", "bench/", "internal/homeserver/", "internal/demo/"}},
	{"database/sql", []string{"store/", "bench/baseline/"}},
	{"modernc.org/sqlite", []string{"store/", "bench/baseline/"}},
	{"github.com/jackc/pgx", []string{"store/", "internal/pgtest/"}},
}

func within(pkg, layer string) bool {
	if base, ok := strings.CutSuffix(layer, "/"); ok {
		return pkg == base || strings.HasPrefix(pkg, layer)
	}
	return pkg == layer
}

func anyWithin(pkg string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return within(pkg, n) })
}

func TestImportsGoDown(t *testing.T) {
	out, err := exec.Command("go", "list", "-tags", "goolm", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pkg := strings.TrimPrefix(f[0], module)
		i := slices.IndexFunc(layers, func(l layer) bool { return within(pkg, l.name) })
		if i < 0 {
			t.Errorf("%s is in no layer", pkg)
			continue
		}
		seen++
		for _, imp := range f[1:] {
			checkImport(t, pkg, imp, layers[i])
		}
	}
	if seen < 10 {
		t.Fatalf("only %d packages were looked at", seen)
	}
}

func checkImport(t *testing.T, pkg, imp string, l layer) {
	t.Helper()
	if ours, ok := strings.CutPrefix(imp, module); ok {
		if !within(ours, l.name) && !anyWithin(ours, l.may) {
			t.Errorf("%s imports %s; %s may import only %q", pkg, ours, l.name, l.may)
		}
		// A plugin knows no other plugin, and only cmd knows plugins.
		if within(ours, "runtime/plugins/") && ours != pkg && !within(pkg, "cmd/") && !within(pkg, "bench/") {
			t.Errorf("%s imports %s; only cmd may import plugins", pkg, ours)
		}
		return
	}
	for _, o := range outside {
		if (imp == o.lib || strings.HasPrefix(imp, o.lib+"/")) && !anyWithin(pkg, o.by) {
			t.Errorf("%s imports %s; only %q may", pkg, imp, o.by)
		}
	}
}

// TestStoreIsOnlyWiredIn: nothing but cmd, bench and tests opens a store, so the
// gate links no SQL.
func TestStoreIsOnlyWiredIn(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "moothall/bridge", "moothall/commands", "moothall/runtime/gate").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if p := strings.TrimSpace(line); p == module+"store" || strings.HasPrefix(p, "modernc.org/sqlite") {
			t.Errorf("the bridge, the commands or the gate link %s", p)
		}
	}
}
