package store

import (
	"fmt"
	"strings"
)

// where builds the conditions of a list; conditions on zero values are left out.
type where struct {
	conds []string
	args  []any
}

func (w *where) arg(v any) string {
	w.args = append(w.args, v)
	return fmt.Sprintf("$%d", len(w.args))
}

func (w *where) equal(column, v string) {
	if v != "" {
		w.conds = append(w.conds, column+"="+w.arg(v))
	}
}

// prefix compares by characters, whatever the database's collation and without
// the wildcards of LIKE.
func (w *where) prefix(column, v string) {
	if v != "" {
		n := w.arg(len([]rune(v)))
		w.conds = append(w.conds, "substr("+column+", 1, CAST("+n+" AS INTEGER))="+w.arg(v))
	}
}

func (w *where) raw(cond string) { w.conds = append(w.conds, cond) }

func in[T ~string](w *where, column string, vs []T) {
	if len(vs) == 0 {
		return
	}
	marks := make([]string, len(vs))
	for i, v := range vs {
		marks[i] = w.arg(string(v))
	}
	w.conds = append(w.conds, column+" IN ("+strings.Join(marks, ",")+")")
}

func (w *where) String() string {
	if len(w.conds) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conds, " AND ")
}

func (w *where) limit(n, def int) string {
	if n <= 0 {
		n = def
	}
	return fmt.Sprintf(" LIMIT %d", n)
}

// among demands one of vs, nothing if there is none: unlike in, an empty list
// must not widen a change.
func among[T ~string](w *where, column string, vs []T) {
	if len(vs) == 0 {
		w.raw("1=0")
		return
	}
	in(w, column, vs)
}

// is compares even an empty value, for changes of one record.
func (w *where) is(column, v string) { w.conds = append(w.conds, column+"="+w.arg(v)) }
