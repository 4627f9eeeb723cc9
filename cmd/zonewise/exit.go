package main

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Exit codes.
const (
	exitOK          = 0
	exitFailure     = 1   // the command could not be carried through
	exitUsage       = 2   // a flag or an argument is wrong
	exitNotSurvived = 4   // a simulation came to what --fail-on names
	exitInterrupted = 130 // Ctrl-C, or another signal to end
)

// usageError marks what cobra found wrong with the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// report says what went wrong, in one line unless a log belongs to it, and
// returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var usage usageError
	switch {
	case errors.Is(err, errNotSurvived):
		return exitNotSurvived // the report has said it
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(w, "zonewise: interrupted")
		return exitInterrupted
	case errors.As(err, &usage):
		fmt.Fprintf(w, "zonewise: %v (see --help)\n", err)
		return exitUsage
	default:
		fmt.Fprintln(w, "zonewise:", err)
		return exitFailure
	}
}
