package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// takeOver kills the leader and waits until another replica holds the lease.
func (w *world) takeOver(leader *replica) {
	w.t.Helper()
	holder := w.leaseHolder()
	require.NoError(w.t, leader.cmd.Process.Kill())
	require.Error(w.t, <-leader.done, "it was killed")
	w.eventually("another replica leads", func() (bool, string) {
		h := w.leaseHolder()
		return h != "" && h != holder, h
	})
}

// lead starts a replica and waits until it leads.
func (w *world) lead(number int) *replica {
	w.t.Helper()
	holder := w.leaseHolder() // of an earlier test, perhaps
	r := w.startReplica(number, 500)
	w.eventually("the replica leads", func() (bool, string) {
		h := w.leaseHolder()
		return h != "" && h != holder, h
	})
	return r
}

// closedSince returns since when a zone has been closed, and fullSince since when it refuses pods; nil if neither.
func closedSince(s *v1alpha1.ZoneSpreadPolicyStatus, zone string) *metav1.Time {
	for i := range s.Zones {
		if s.Zones[i].Name == zone {
			return s.Zones[i].Since
		}
	}
	return nil
}

func fullSince(s *v1alpha1.ZoneSpreadPolicyStatus, zone string) *metav1.Time {
	for i := range s.Zones {
		if s.Zones[i].Name == zone && len(s.Zones[i].Full) > 0 {
			return &s.Zones[i].Full[0].Since
		}
	}
	return nil
}

// TestPolicyFailover: the lease changes hands, from one process to another, in the middle of the grace periods of a zone that is
// full and one that is dead. The new leader lets the waiting pods go by the periods that the old one began, which the beginnings
// of the states show: a period of its own would begin with its lead. When the states are reached the lease changes hands again,
// and both are still there.
func TestPolicyFailover(t *testing.T) {
	const grace = 18 * time.Second
	w := newPolicyWorld(t)
	w.needControllers()
	w.addNodes("16", "a1", "b1", "d1")
	w.addNodes("50m", "c1")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.UnavailableZones = failover(grace, grace) })
	status := func() *v1alpha1.ZoneSpreadPolicyStatus {
		t.Helper()
		got := &v1alpha1.ZoneSpreadPolicy{}
		require.NoError(t, w.policies.Get(w.ctx, client.ObjectKeyFromObject(p), got))
		return &got.Status
	}
	first := w.lead(1)
	second := w.startReplica(2, 500)
	w.waitStatus(p, "the zones are known", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool { return len(s.Zones) == 4 })
	w.strike("d1")
	began := time.Now()
	w.deploy(8, "100m", func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulerName = "zonewise-scheduler" })
	w.waitPlaced(2)
	w.waitStatus(p, "both beginnings are written", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return fullSince(s, "zone-c") != nil && closedSince(s, "zone-d") != nil
	})
	full, dead := fullSince(status(), "zone-c"), closedSince(status(), "zone-d")

	w.takeOver(first)
	require.Equal(t, 2, w.placed())
	require.Less(t, time.Since(began), grace, "the grace period was over before the failover, so the test shows nothing")
	third := w.startReplica(3, 500) // the next standby; it sees nothing of the beginning
	w.waitBoundCount(8, labelled("web"))
	require.Greater(t, time.Since(began), grace-2*time.Second, "the times in the status have whole seconds")
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b")
	w.waitStatus(p, "one zone is full and one is closed", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return stateOf(s, "zone-c") == v1alpha1.ZoneFull && stateOf(s, "zone-d") == v1alpha1.ZoneClosed && s.Pods == 8
	})
	before := status()
	require.Equal(t, full, fullSince(before, "zone-c"), "the first leader's time")
	require.Equal(t, dead, closedSince(before, "zone-d"), "the first leader's time")

	w.eventually("the standby is ready", func() (bool, string) {
		code, body, err := third.get(w.ctx, "/readyz")
		return code == 200, fmt.Sprint(code, body, err)
	})
	w.takeOver(second)
	w.scale(12)
	scaled := time.Now()
	w.waitBoundCount(12, labelled("web"))
	require.Less(t, time.Since(scaled), grace, "no grace period has begun again")
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b")
	w.waitStatus(p, "the states are as before", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return s.Pods == 12 && stateOf(s, "zone-c") == v1alpha1.ZoneFull && stateOf(s, "zone-d") == v1alpha1.ZoneClosed &&
			fullSince(s, "zone-c").Equal(full) && closedSince(s, "zone-d").Equal(dead)
	})
}
