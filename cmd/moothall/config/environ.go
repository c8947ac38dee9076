package config

import (
	"slices"
	"strings"
)

const (
	environment   = "environment"
	envPrefix     = "MOOTHALL_"
	fileSuffix    = "_file"
	fileSuffixEnv = "_FILE"
)

// EnvConfig is the variable that names the configuration file. Together with
// EnvRequire, and names that begin with EnvTest, it is the only variable with
// our prefix that is no key.
const (
	EnvConfig  = "MOOTHALL_CONFIG"
	EnvRequire = "MOOTHALL_REQUIRE"
	EnvTest    = "MOOTHALL_TEST_"
)

// envName is the variable of a key: two underscores between levels.
func envName(keyName string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(keyName, ".", "__"))
}

// readEnviron takes every variable that is ours; they win over the file. An
// empty one is as good as none, which is what container tools make of a
// variable that is not set.
func (l *loader) readEnviron(environ []string) {
	known := map[string]string{} // variable → key
	var all []string
	for i := range l.keys {
		k := &l.keys[i]
		env := envName(k.name)
		known[env] = k.name
		all = append(all, env)
		if k.secret() {
			known[env+fileSuffixEnv] = k.name
			all = append(all, env+fileSuffixEnv)
		}
	}
	seen := map[string]string{} // key → variable
	environ = slices.Clone(environ)
	slices.Sort(environ)
	for _, pair := range environ {
		env, value, ok := strings.Cut(pair, "=")
		if !ok || !strings.HasPrefix(env, envPrefix) || env == EnvConfig || env == EnvRequire || strings.HasPrefix(env, EnvTest) {
			continue
		}
		keyName, ok := known[env]
		if !ok {
			l.fail("", Problem{File: environment, Key: envLabel(env), Text: "is no variable of Moothall" + meant(nearest(env, all))})
			continue
		}
		if value == "" {
			continue
		}
		if other, twice := seen[keyName]; twice && other != env {
			l.fail(keyName, Problem{File: environment, Key: env, Text: "is given as well as " + other + ": keep one"})
			continue
		}
		seen[keyName] = env
		l.take(keyName, env, value)
	}
}

// take records one variable as the setting of its key.
func (l *loader) take(keyName, env, value string) {
	s := setting{texts: []string{value}, file: environment, label: env}
	switch k := l.key(keyName); {
	case k.secret():
		s.inFile = env != envName(keyName)
	case k.kind() == "list":
		s.texts = splitList(value)
	}
	// What the file says about this key no longer matters, nor do its faults.
	delete(l.faulty, keyName)
	l.problems = slices.DeleteFunc(l.problems, func(p Problem) bool {
		return p.File == l.path && p.File != environment && (p.Key == keyName || p.Key == keyName+fileSuffix)
	})
	l.set[keyName] = s
}

// envLabel is a variable's name as it may be shown.
func envLabel(env string) string {
	if len(env) > 64 || !nameGrammar().MatchString(env) {
		return envPrefix + "(unreadable name)"
	}
	return env
}

func meant(candidate string) string {
	if candidate == "" {
		return ""
	}
	return "; did you mean " + candidate + "?"
}

// splitList splits at commas, drops spaces around the items and empty items.
func splitList(s string) []string {
	var out []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}
