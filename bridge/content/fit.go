package content

import (
	"fmt"
	"strings"
)

// FitBody cuts text to at most limit bytes and says in a last line how many bytes
// are left out. It cuts at the end of a line if one ends in the last half,
// otherwise between characters. cut is that number, 0 when everything fits. A
// limit too small for the last line gives only as much of the text as fits.
func FitBody(text string, limit int) (fitted string, cut int) {
	if len(text) <= limit {
		return text, 0
	}
	// The length of the count depends on the count; its longest form decides.
	room := limit - len(leftOut(len(text)))
	if room <= 0 {
		head := clip(text, max(limit, 0))
		return head, len(text) - len(head)
	}
	head := clip(text, room)
	if i := strings.LastIndexByte(head, '\n'); i >= len(head)/2 {
		head = head[:i]
	}
	cut = len(text) - len(head)
	return head + leftOut(cut), cut
}

func leftOut(n int) string {
	return fmt.Sprintf("\n… (%d more bytes left out)", n)
}
