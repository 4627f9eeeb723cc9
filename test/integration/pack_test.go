package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"zonewise.dev/test/build"
)

// workload is a mixture of services that are spread and gangs that are whole or not at all.
type workload struct {
	apps  []string
	gangs []string
	pods  []*v1.Pod
}

// createWorkload creates services of 9 pods and gangs of 4, in turns.
func (w *world) createWorkload(apps, gangs int, options ...podOption) *workload {
	w.t.Helper()
	l := &workload{}
	for i := range max(apps, gangs) {
		if i < gangs {
			name := fmt.Sprintf("gang-%d", i)
			w.createGroup(name, 4)
			l.gangs = append(l.gangs, name)
			l.pods = append(l.pods, w.create(newPods(4, name, "250m", append(options, build.Member(name))...)...)...)
		}
		if i < apps {
			name := fmt.Sprintf("app-%d", i)
			l.apps = append(l.apps, name)
			l.pods = append(l.pods, w.create(newPods(9, name, "250m", append(options, ofApp(name, 1, hard))...)...)...)
		}
	}
	return l
}

// boundCount is how many of the pods are bound.
func (w *world) boundCount() int {
	w.t.Helper()
	n := 0
	for _, pod := range w.pods(nil) {
		if pod.Spec.NodeName != "" {
			n++
		}
	}
	return n
}

// slowly makes a scheduler send n requests a second, so that a test can act in the middle of its work.
func slowly(n int32) schedulerOption {
	return edited(func(c *configv1.KubeSchedulerConfiguration) {
		c.ClientConnection.QPS, c.ClientConnection.Burst = float32(n), n
	})
}

// TestSecondScheduler: two schedulers serve their own pods, and either's ledger has the pods of both.
func TestSecondScheduler(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1", "b1", "c1")
	first := w.startScheduler()
	second := w.startScheduler(configured("second-scheduler.yaml"))
	mine := w.create(newPods(6, "mine", "500m", ofApp("web", 1, hard))...)
	theirs := w.create(newPods(6, "theirs", "500m", ofApp("web", 1, hard), build.Scheduler("zonewise-scheduler"))...)
	w.waitBound(append(mine, theirs...)...)
	w.assertInvariants()
	require.Equal(t, first.ledgerAccount(), second.ledgerAccount())
	require.Equal(t, 12, first.ledger().Stats().Pods)
}
