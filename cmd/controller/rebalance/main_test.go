package rebalance

import (
	"os"
	"testing"

	"zonewise.dev/sim"
)

// TestMain uses one processor, as who plans does.
func TestMain(m *testing.M) {
	sim.UseOneProcessor()
	os.Exit(m.Run())
}
