package main

import (
	"errors"
	"os"

	"zonewise.dev/internal/program"
)

// errNotSurvived says that a simulation broke a promise that --fail-on names. Its report has been printed.
var errNotSurvived = errors.New("")

var exitCodes = program.Codes{errNotSurvived: 4}

func main() {
	os.Exit(program.Run(newRoot(), exitCodes))
}
