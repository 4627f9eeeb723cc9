package integration

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// waitTimeout bounds every wait of a test. It is far above what any of them takes: no test is tried twice.
const waitTimeout = 3 * time.Minute

// pollInterval is the pause between two looks at a condition.
const pollInterval = 50 * time.Millisecond

// cp is the control plane that all tests of the package share.
var cp *controlPlane

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		os.Exit(runScheduler())
	}
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var err error
	cp, err = startControlPlane()
	if err != nil {
		fmt.Fprintf(os.Stderr, "test/integration: %v\n", err)
		return 1
	}
	defer func() {
		if err := cp.stop(); err != nil {
			fmt.Fprintf(os.Stderr, "test/integration: stopping the control plane: %v\n", err)
			code = 1
		}
	}()
	return m.Run()
}
