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
	exitFailure     = 1   // the command failed
	exitUsage       = 2   // a flag or an argument is wrong
	exitNotSurvived = 4   // a simulation broke a promise that --fail-on names
	exitInterrupted = 130 // Ctrl-C, or another signal that ends the process
)

// usageError marks an error that cobra found in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// report prints an error, in one line unless a log belongs to it, and returns
// the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	var usage usageError
	switch {
	case errors.Is(err, errNotSurvived):
		return exitNotSurvived // already printed
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
