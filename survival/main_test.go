package survival_test

import (
	"os"
	"runtime"
	"testing"
)

// TestMain uses one processor, as the controller does, unless the environment says how many.
func TestMain(m *testing.M) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	os.Exit(m.Run())
}
