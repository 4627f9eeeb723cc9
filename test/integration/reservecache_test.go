package integration

import (
	"testing"

	"github.com/stretchr/testify/require"
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
