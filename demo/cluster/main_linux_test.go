package cluster

import (
	"os"
	"testing"
)

// The test binary also plays a demo that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == victimCommand {
		victim(os.Args[2])
	}
	os.Exit(m.Run())
}
