package survival_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"zonewise.dev/sim"
)

// TestMain uses one processor, as the controller does. With -short there are few random clusters.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*clusters = min(*clusters, 6)
	}
	sim.UseOneProcessor()
	if err := sim.SetFeatureGates(""); err != nil {
		fmt.Fprintln(os.Stderr, "survival:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
