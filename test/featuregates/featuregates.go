// Package featuregates sets the feature gates of a test's process as the command line and the controller do.
package featuregates

import (
	"fmt"
	"os"
	"testing"

	"zonewise.dev/sim"
)

// Run sets the gates, runs the tests of a package, and ends the process.
func Run(m *testing.M) {
	if err := sim.SetFeatureGates(""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
