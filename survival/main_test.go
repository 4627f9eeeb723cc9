package survival_test

import (
	"os"
	"testing"

	"zonewise.dev/sim"
)

// TestMain uses one processor, as the controller does.
func TestMain(m *testing.M) {
	sim.UseOneProcessor()
	os.Exit(m.Run())
}
