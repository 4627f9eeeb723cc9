package show

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// DefaultWidth is used if the width of a terminal is unknown.
const DefaultWidth = 80

// IsTerminal reports whether w is a terminal that understands control
// sequences.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// NoColor follows https://no-color.org: any value but the empty one.
func NoColor() bool { return os.Getenv("NO_COLOR") != "" }

// Width is the width of the terminal behind w at this moment.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return DefaultWidth
}

// StyleOf says how text on w looks.
func StyleOf(w io.Writer) Style {
	if !IsTerminal(w) {
		return Style{}
	}
	return Style{Color: !NoColor(), Width: Width(w)}
}

// Rewrite replaces the last line of a terminal. A line that wraps could not be replaced, so the text is cut.
func Rewrite(w io.Writer, text string) {
	runes := []rune(text)
	fmt.Fprintf(w, "\r\x1b[K%s", string(runes[:min(len(runes), max(0, Width(w)-1))]))
}
