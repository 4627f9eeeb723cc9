package framework

import (
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test with a time of its own. The recorders of metrics of Kubernetes 1.36 see once a second whether
// they are stopped, which they are by the test's own cleanups.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) })
		test(t)
	})
}
