package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// defaultWidth is assumed where the width of a terminal cannot be told.
const defaultWidth = 80

// isTerminal reports whether w is a terminal that understands control
// sequences.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// noColor follows https://no-color.org: any value but the empty one.
func noColor() bool { return os.Getenv("NO_COLOR") != "" }

// width is the width of the terminal behind w at this moment.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return defaultWidth
}
