package integration

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// waitTimeout bounds every wait of a test. It is far above what any of them takes: no test is tried twice.
const waitTimeout = 3 * time.Minute

// pollInterval is the pause between two looks at a condition.
const pollInterval = 50 * time.Millisecond

// beside is how many tests run at the same time. They wait more than they compute: two take 55% of the time of one.
var beside = flag.Int("beside", 2, "how many tests run at the same time, on a control plane each")

// controlPlanes has those that no test uses at the moment. Nodes belong to no namespace, so a test has one for itself.
var controlPlanes chan *controlPlane

func TestMain(m *testing.M) {
	if os.Getenv(asScheduler) != "" {
		os.Exit(runScheduler())
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	// The schedulers of a test log to that test (scheduler_test.go). What logs without a context says
	// nothing that a failure needs.
	klog.SetLogger(logr.Discard())
	ctrllog.SetLogger(logr.Discard())
	if err := flag.Set("test.parallel", strconv.Itoa(*beside)); err != nil {
		fmt.Fprintln(os.Stderr, "test/integration:", err)
		return 1
	}
	all, errs := make([]*controlPlane, *beside), make([]error, *beside)
	var starts sync.WaitGroup
	for i := range all {
		starts.Go(func() { all[i], errs[i] = startControlPlane() })
	}
	starts.Wait()
	defer func() {
		for i, cp := range all {
			if errs[i] != nil {
				continue // it has been stopped
			}
			if err := cp.stop(); err != nil {
				fmt.Fprintf(os.Stderr, "test/integration: stopping a control plane: %v\n", err)
				code = 1
			}
		}
	}()
	controlPlanes = make(chan *controlPlane, len(all))
	for i, cp := range all {
		if errs[i] != nil {
			fmt.Fprintf(os.Stderr, "test/integration: %v\n", errs[i])
			return 1
		}
		controlPlanes <- cp
	}
	return m.Run()
}

// takeControlPlane has the test run beside others, and gives it a control plane until its end.
func takeControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	t.Parallel()
	cp := <-controlPlanes
	t.Cleanup(func() { controlPlanes <- cp })
	return cp
}
