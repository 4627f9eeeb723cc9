package integration

import (
	"fmt"
	"net/http"
	"testing"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestReservationFailover: the leader is killed while pods wait that it kept out. The next one keeps them out as well, holds
// the slots where they were, and lets the owners in.
func TestReservationFailover(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1", "a2", "b1", "b2")
	r := w.reserve("shop", inZones(2, "ab"))
	mine := build.Scheduler("zonewise-scheduler")
	first := w.lead(1)
	second := w.startReplica(2, 500)
	w.waitReady(r, 4)
	before := slotsByNode(&w.reservation(r).Status)
	batch := w.create(newPods(14, "batch", "1", mine)...)
	out := w.waitBoundOf(12, "shop", batch)
	w.eventually("the standby is ready", func() (bool, string) {
		code, body, err := second.get(w.ctx, "/readyz")
		return code == http.StatusOK, fmt.Sprint(code, body, err)
	})

	w.takeOver(first)
	w.waitBound(w.create(owners(3, "web", "1", mine)...)...)
	w.requirePending(out...)
	w.waitReservation(r, "as before, without the three that are taken", func(s *v1alpha1.ZoneReservationStatus) bool {
		for node, slots := range slotsByNode(s) {
			if slots > before[node] {
				return false
			}
		}
		return s.Slots.Held == 1
	})

	w.deleteReservation(r)
	w.eventually("one cpu is free now", func() (bool, string) { n := w.boundOf(out); return n == 1, fmt.Sprint(n) })
}
