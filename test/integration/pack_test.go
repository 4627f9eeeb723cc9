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
			w.createGroup(name, 4, 0)
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

// TestRestartInTheMiddleOfAWorkload: the scheduler ends when a part of the pods is bound. The next one
// binds the rest, spreads each service as if nothing had happened, and completes the gangs.
func TestRestartInTheMiddleOfAWorkload(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1", "a2", "b1", "b2", "c1", "c2")
	first := w.startScheduler(slowly(25))
	load := w.createWorkload(4, 4)
	w.eventually("some pods are bound", func() (bool, string) { return w.boundCount() >= 12, fmt.Sprint(w.boundCount()) })
	w.stopScheduler(first)
	middle := w.boundCount()
	// On a slow machine the first scheduler may have kept up with the creation: what arrives now is left for the next.
	load.apps = append(load.apps, "late")
	load.pods = append(load.pods, w.create(newPods(9, "late", "250m", ofApp("late", 1, hard))...)...)

	w.startScheduler()
	w.waitBound(load.pods...)
	for _, name := range load.apps {
		w.requireSkew(1, labelled(name), "zone-a", "zone-b", "zone-c")
	}
	w.assertInvariants()
	t.Logf("restarted with %d of %d pods bound", middle, len(load.pods))
}

// TestZoneIsLost: Deployments and a gang share three zones. One zone is lost: the Deployments' pods move and
// stay spread over the others. A gang that no longer fits waits whole, and is bound when the zone returns.
func TestZoneIsLost(t *testing.T) {
	w := newWorld(t)
	w.needControllers()
	w.addNodes("4", "a1", "a2", "b1", "b2", "c1", "c2")
	w.startScheduler()
	for _, name := range []string{"web", "api"} {
		require.NoError(t, w.cp.client.Create(w.ctx, newDeployment(w.namespace, name, 6, newPod(name, "1", ofApp(name, 1, hard)))))
		w.waitBoundCount(6, labelled(name))
		w.requireSkew(1, labelled(name), "zone-a", "zone-b", "zone-c")
	}
	// 12 of 24 CPUs are taken; without a zone 12 of 16 are.
	w.deleteNode("c1")
	w.deleteNode("c2")
	for _, name := range []string{"web", "api"} {
		w.eventually("all pods are in the zones that are left", func() (bool, string) {
			// Also a pod that was being bound while its node went. The garbage collector of pods would take a minute.
			w.deletePodsOn("c1", "c2")
			counts := w.byZone(labelled(name))
			return counts["zone-a"]+counts["zone-b"] == 6 && counts["zone-c"] == 0, fmt.Sprint(counts)
		})
		w.requireSkew(1, labelled(name), "zone-a", "zone-b")
	}
	w.createGroup("train", 8, 0)
	gang := w.create(newPods(8, "train", "1", build.Member("train"))...)
	w.waitEvent("PodGroup", "train", "short of cpu")
	w.requirePending(gang...)
	w.assertInvariants()

	w.addNodes("4", "c3", "c4")
	w.waitBound(gang...)
}

// TestPreemption: victims leave the ledger when they are gone, not before, and the pod that evicted them
// takes their place.
func TestPreemption(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1", "b1")
	s := w.startScheduler()
	high := w.createPriorityClass(1000)
	// One victim for each: with more, a pod that is woken by the end of the first may be tried while the last one ends. kube-scheduler
	// then preempts that one again, finds it gone, and leaves the pod alone for five minutes.
	low := w.create(newPods(2, "low", "2")...)
	w.waitBound(low...)
	important := w.create(newPods(2, "important", "2", build.PriorityClass(high))...)
	w.waitBound(important...)
	require.NotEqual(t, w.pod(important[0]).Spec.NodeName, w.pod(important[1]).Spec.NodeName)
	w.assertInvariants()
	require.Len(t, s.ledger().Dump().Pods(), 2)
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
