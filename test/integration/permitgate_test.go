package integration

import (
	"testing"

	"zonewise.dev/test/build"
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
			gang := w.create(newPods(5, "train", "1", build.Member("train"))...)
			// Pods of no gang are not held up by it, and show that the scheduler has come this far.
			w.waitBound(w.create(newPod("other", "1"))...)
			w.requirePending(gang...)

			gang = append(gang, w.create(newPod("train-5", "1", build.Member("train")))...)
			w.waitBound(gang...)
		})
	}
}
