package cluster

import (
	"os"
	"testing"
)

// The test binary plays the parts that the demo's executable plays: it is its own guard, and a demo that is killed.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == GuardCommand:
		if err := RunGuard(os.Stdin, os.Args[2]); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == victimCommand:
		victim(os.Args[2])
	}
	os.Exit(m.Run())
}
