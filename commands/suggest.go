package commands

import (
	"strings"
	"unicode/utf8"
)

// maxCompared is the longest name that is compared, in characters.
const maxCompared = 64

// Nearest finds the known name a person most likely meant: one that differs by
// few letters (one in three, at most three; swapped neighbours count as one), or
// else the only one that begins or ends with what they wrote. Case does not
// matter. ok is false when nothing is near.
func Nearest(name string, known []string) (nearest string, ok bool) {
	if name == "" || len(name) > maxCompared*utf8.UTFMax {
		return "", false
	}
	want := []rune(strings.ToLower(name))
	if len(want) > maxCompared {
		return "", false
	}
	best := min(3, max(1, len(want)/3)) + 1
	for _, k := range known {
		if len(k) > maxCompared*utf8.UTFMax {
			continue
		}
		have := []rune(strings.ToLower(k))
		if len(have) > maxCompared || len(have)-len(want) >= best || len(want)-len(have) >= best {
			continue
		}
		// A name all of whose letters differ is not near, however short.
		if d := distance(want, have); d < best && d < max(len(want), len(have)) {
			best, nearest = d, k
		}
	}
	if nearest != "" {
		return nearest, true
	}
	return onlyPart(string(want), known)
}

// onlyPart finds the one known name that begins or ends with part.
func onlyPart(part string, known []string) (string, bool) {
	if utf8.RuneCountInString(part) < 3 {
		return "", false
	}
	found := ""
	for _, k := range known {
		low := strings.ToLower(k)
		if !strings.HasPrefix(low, part) && !strings.HasSuffix(low, part) {
			continue
		}
		if found != "" {
			return "", false
		}
		found = k
	}
	return found, found != ""
}

// distance counts the letters to add, drop, change or swap with a neighbour to
// make b of a (Damerau-Levenshtein, each place edited once).
func distance(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
