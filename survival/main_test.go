package survival_test

import (
	"flag"
	"testing"

	"zonewise.dev/sim"
	"zonewise.dev/test/featuregates"
)

// TestMain uses one processor, as the controller does. With -short there are few random clusters.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*clusters = min(*clusters, 6)
	}
	sim.UseOneProcessor()
	featuregates.Run(m)
}
