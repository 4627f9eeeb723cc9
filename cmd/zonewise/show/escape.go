package show

import (
	"fmt"
	"strings"
	"unicode"
)

// Printable makes text from the cluster harmless on a terminal: whoever may write an event or a condition must not move
// the cursor, rename the window or turn the direction of text. Control characters become visible, as kubectl shows
// them: ESC as ^[. Line breaks and tabs become spaces.
func Printable(text string) string {
	if !strings.ContainsFunc(text, unprintable) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case !unprintable(r):
			out.WriteRune(r)
		case r == '\n' || r == '\r' || r == '\t':
			out.WriteByte(' ')
		case r < 0x80:
			out.WriteByte('^')
			out.WriteRune(r ^ 0x40)
		default:
			fmt.Fprintf(&out, "\\u%04x", r)
		}
	}
	return out.String()
}

func unprintable(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
