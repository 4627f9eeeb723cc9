package main

import (
	"errors"
	"os"

	"zonewise.dev/internal/program"
)

// errNotSurvived says that a simulation broke a promise that --fail-on names. Its report has been printed.
var errNotSurvived = errors.New("")

// errPartial says that a simulation has no failure to report, and did not see all of the cluster.
var errPartial = errors.New("what the simulation did not see may decide")

var exitCodes = program.Codes{errNotSurvived: 4, errPartial: 5}

func main() {
	os.Exit(program.Run(newRoot(), exitCodes))
}
