package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMinMemberOfZero: a PodGroup that asks for nothing is a mistake; its members wait with an event that
// says so, and go on when it is corrected.
func TestMinMemberOfZero(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	w.createGroup("train", 0, 0)
	gang := w.create(newPods(2, "train", "1", inGroup("train"))...)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, "spec.minMember is 0, must be at least 1")
	}
	w.waitEvent("PodGroup", "train", "spec.minMember is 0, must be at least 1")
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(gang...)

	w.setMinMember("train", 2)
	w.waitBound(gang...)
}

// TestGroupThatNeverComes: a pod that names a PodGroup which is not there waits with an event that names
// it, and goes on when it comes after all.
func TestGroupThatNeverComes(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	lost := w.create(newPod("lost", "1", inGroup("nobody")))[0]
	w.waitEvent("Pod", lost.Name, "PodGroupNotFound: PodGroup "+w.namespace+"/nobody")
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(lost)

	w.createGroup("nobody", 1, 0)
	w.waitBound(lost)
}

// TestPodGroupsAreNotInstalled: without the CRD pods of no gang are scheduled as ever, and members wait
// with an event that says what is missing. When the CRD is installed they go on, without a restart.
func TestPodGroupsAreNotInstalled(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, cp.uninstallPodGroups())
	t.Cleanup(func() { require.NoError(t, cp.installPodGroups()) })
	w.addNodes("8", "a1", "b1", "c1")
	w.startScheduler()
	w.waitBound(w.create(newPods(6, "web", "1", ofApp("web", 1, hard))...)...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))

	gang := w.create(newPods(3, "train", "1", inGroup("train"))...)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, "PodGroup "+w.namespace+"/train")
	}
	w.requirePending(gang...)
	// Pods without a group still pass them.
	w.waitBound(w.create(newPod("other", "1"))...)

	require.NoError(t, cp.installPodGroups())
	w.createGroup("train", 3, 0)
	w.waitBound(gang...)
}
