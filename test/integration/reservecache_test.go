package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
)

// TestReserveCacheAlone: the profile with this one plugin schedules, and its ledger follows.
func TestReserveCacheAlone(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1", "b1", "c1")
	s := w.startScheduler(configured("reservecache.yaml"))
	w.waitBound(w.create(newPods(12, "web", "1", ofApp("web", 1, hard))...)...)
	w.assertInvariants()
	require.Equal(t, 12, s.ledger().Stats().Pods)
	require.Equal(t, map[string]int{"zone-a": 4, "zone-b": 4, "zone-c": 4}, w.byZone(labelled("web")), "PodTopologySpread is still there")
}

// TestProfilesShareOneLedger: pods of two profiles fill the same nodes to the brim and not over it, and one
// ledger has them all.
func TestProfilesShareOneLedger(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1", "b1")
	s := w.startScheduler(withSecondProfile("batch"))
	mine := w.create(newPods(5, "service", "1")...)
	theirs := w.create(newPods(5, "batch", "1", byScheduler("batch"))...)
	w.eventually("eight of ten are bound", func() (bool, string) {
		return s.ledger().Stats().Pods == 8 && s.ledger().Stats().AssumedPods == 0, fmt.Sprintf("%+v", s.ledger().Stats())
	})
	w.assertInvariants()
	for _, node := range []string{"a1", "b1"} {
		require.Equal(t, int64(4000), s.ledgerAccount()[node].MilliCPU, node)
	}
	// Two are left over. They go on when room is made, whoever had it.
	var bound, left []*v1.Pod
	for _, pod := range append(mine, theirs...) {
		if w.pod(pod).Spec.NodeName != "" {
			bound = append(bound, pod)
		} else {
			left = append(left, pod)
		}
	}
	require.Len(t, left, 2)
	for _, pod := range bound {
		w.deletePod(pod)
	}
	w.waitBound(left...)
}

// TestLedgerAfterARestart: a new scheduler that finds pods bound, pods waiting and a node that is gone
// has the ledger that the old one had.
func TestLedgerAfterARestart(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1", "b1")
	old := w.startScheduler()
	w.waitBound(w.create(newPods(8, "web", "1")...)...)
	waiting := w.create(newPod("waiting", "1"))[0]
	w.waitUnschedulable("Insufficient cpu", waiting)
	w.assertInvariants()
	before := old.ledgerAccount()
	w.stopScheduler(old)

	restarted := w.startScheduler()
	w.assertInvariants()
	require.Equal(t, before, restarted.ledgerAccount())

	w.addNodes("1", "c1")
	w.waitBound(waiting)
}

// TestNodeGoesAndItsPodsStay: a node object that is deleted leaves its pods behind until somebody removes
// them. When the node comes back before that, they still take their room.
func TestNodeGoesAndItsPodsStay(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1")
	s := w.startScheduler()
	pods := w.create(newPods(2, "web", "1")...)
	w.waitBound(pods...)

	w.deleteNode("a1")
	w.eventually("the ledger has a ghost", func() (bool, string) {
		stats := s.ledger().Stats()
		return stats.Nodes == 0 && stats.Ghosts == 1 && stats.Pods == 2, fmt.Sprintf("%+v", stats)
	})
	w.addNodes("2", "a1")
	w.eventually("the ghost is a node again", func() (bool, string) {
		stats := s.ledger().Stats()
		return stats.Nodes == 1 && stats.Ghosts == 0 && stats.Pods == 2, fmt.Sprintf("%+v", stats)
	})
	w.assertInvariants()
	third := w.create(newPod("third", "1"))[0]
	w.waitUnschedulable("Insufficient cpu", third)

	w.deletePod(pods[0])
	w.waitBound(third)

	// Gone for good: the last pod takes the ghost with it.
	w.deleteNode("a1")
	w.eventually("the ledger has a ghost", func() (bool, string) {
		return s.ledger().Stats().Ghosts == 1, fmt.Sprintf("%+v", s.ledger().Stats())
	})
	w.deletePod(pods[1])
	w.deletePod(third)
	w.eventually("the ledger is empty", func() (bool, string) {
		stats := s.ledger().Stats()
		return stats.Nodes+stats.Ghosts+stats.Pods == 0, fmt.Sprintf("%+v", stats)
	})
}

// TestPodsThatFinish: a pod that has run to its end takes nothing any more.
func TestPodsThatFinish(t *testing.T) {
	w := newWorld(t)
	w.addNodes("1", "a1")
	s := w.startScheduler()
	first := w.create(newPod("first", "1"))[0]
	w.waitBound(first)
	second := w.create(newPod("second", "1"))[0]
	w.waitUnschedulable("Insufficient cpu", second)

	w.eventually("the pod has finished", func() (bool, string) {
		done := w.pod(first)
		done.Status.Phase = v1.PodSucceeded
		err := w.cp.client.Status().Update(w.ctx, done) // the kubelets may write at the same time
		return err == nil, fmt.Sprint(err)
	})
	w.waitBound(second)
	w.assertInvariants()
	require.Equal(t, 1, s.ledger().Stats().Pods)
}

// TestAllocatableChanges: a node that grows or shrinks is followed, and pods that are on it stay.
func TestAllocatableChanges(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	s := w.startScheduler()
	w.waitBound(w.create(newPods(2, "web", "1")...)...)
	w.resizeNode("a1", "2")
	w.eventually("ledger and scheduler have seen it", func() (bool, string) {
		own, cache := s.ledgerAccount()["a1"], s.cacheAccount()["a1"]
		return own.AllocatableMilliCPU == 2000 && cache.AllocatableMilliCPU == 2000, fmt.Sprintf("%+v, %+v", own, cache)
	})
	third := w.create(newPod("third", "1"))[0]
	w.waitUnschedulable("Insufficient cpu", third)
	w.resizeNode("a1", "3")
	w.waitBound(third)
	w.assertInvariants()
	require.Equal(t, int64(3000), s.ledgerAccount()["a1"].MilliCPU)
}
