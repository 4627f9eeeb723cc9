package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGangBindsWhole: nothing happens until the last member exists, and then all are bound.
func TestGangBindsWhole(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"permitgate.yaml", "zonewise.yaml"} {
		t.Run(file, func(t *testing.T) {
			w := newWorld(t)
			w.addNodes("4", "a1", "b1", "c1")
			w.startScheduler(configured(file))
			w.createGroup("train", 6, 0)
			gang := w.create(newPods(5, "train", "1", inGroup("train"))...)
			// Pods of no gang are not held up by it, and show that the scheduler has come this far.
			w.waitBound(w.create(newPod("other", "1"))...)
			w.requirePending(gang...)

			gang = append(gang, w.create(newPod("train-5", "1", inGroup("train")))...)
			w.waitBound(gang...)
		})
	}
}

// TestGangIsSpread: the members of a gang have spread constraints like other pods.
func TestGangIsSpread(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1")
	w.addNodes("4", "b1", "c1")
	w.startScheduler()
	w.createGroup("train", 6, 0)
	w.waitBound(w.create(newPods(6, "train", "1", inGroup("train"), ofApp("train", 1, hard))...)...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("train")))
}

// TestElasticGangGrowsAndShrinks: once whole a gang takes and loses members like any workload, as long as minMember of them
// are left; below that newcomers wait until they are enough again.
func TestElasticGangGrowsAndShrinks(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	w.createGroup("train", 3, 0)
	gang := w.create(newPods(3, "train", "1", inGroup("train"))...)
	w.waitBound(gang...)

	// Up: one by one, as there is room.
	gang = append(gang, w.create(newPod("fourth", "1", inGroup("train")))...)
	w.waitBound(gang...)
	more := w.create(newPods(2, "more", "1", inGroup("train"))...)
	w.waitUnschedulable("Insufficient cpu", more...)
	w.addNodes("1", "b1")
	w.eventually("one of them is bound, without the other", func() (bool, string) {
		n := 0
		for _, pod := range more {
			if w.pod(pod).Spec.NodeName != "" {
				n++
			}
		}
		return n == 1, fmt.Sprint(n)
	})
	w.addNodes("1", "c1")
	w.waitBound(more...)
	gang = append(gang, more...)

	// Down, and minMember are left: the rest runs on, and a newcomer asks nobody.
	for _, pod := range gang[3:] {
		w.deletePod(pod)
	}
	w.waitBound(w.create(newPod("newcomer", "1", inGroup("train")))...)
	w.waitBound(gang[:3]...)

	// Down, and one is left, which runs on. Two make a gang with it, and one does not.
	for _, pod := range append(w.pods(nil), *gang[1]) {
		if pod.Name != gang[0].Name {
			w.deletePod(&pod)
		}
	}
	second := w.create(newPod("second", "1", inGroup("train")))[0]
	w.waitEvent("Pod", second.Name, "needs 3 members, 2 exist")
	w.requirePending(second)
	w.waitBound(gang[0])
	w.waitBound(second, w.create(newPod("third", "1", inGroup("train")))[0])
}
