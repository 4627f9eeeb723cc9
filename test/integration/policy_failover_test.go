package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
			return s.Zones[i].Full[0].Since
		}
	}
	return nil
}

// TestPolicyFailover: the lease changes hands, from one process to another, in the middle of the grace periods of a zone that is
// full and one that is dead. The new leader goes on with the beginnings that the old one wrote, and by them the states are
// reached when the periods are made so short that they are over. When the lease changes hands again both states are still there.
// TestRestart (test/framework) shows at which times pods go elsewhere.
func TestPolicyFailover(t *testing.T) {
	w := newPolicyWorld(t)
	w.needControllers()
	w.addNodes("16", "a1", "b1", "d1")
	w.addNodes("50m", "c1")
	p := w.spreadBy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) { s.UnavailableZones = failover(time.Hour, time.Hour) })
	first := w.lead(1)
	second := w.startReplica(2, 500)
	w.waitStatus(p, "the zones are known", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool { return len(s.Zones) == 4 })
	w.strike("d1")
	w.deploy(8, "100m", func(d *appsv1.Deployment) { d.Spec.Template.Spec.SchedulerName = "zonewise-scheduler" })
	w.waitPlaced(2)
	var full, dead *metav1.Time
	w.waitStatus(p, "both beginnings are written", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		full, dead = fullSince(s, "zone-c"), closedSince(s, "zone-d")
		return full != nil && dead != nil
	})

	w.takeOver(first)
	third := w.startReplica(3, 500) // the next standby; it sees nothing of the beginning
	require.Equal(t, 2, w.placed())
	require.NoError(t, w.policies.Patch(w.ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"unavailableZones":{"downAfter":"1s","fullAfter":"1s"}}}`))))
	w.waitBoundCount(8, labelled("web"))
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b")
	reached := func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return stateOf(s, "zone-c") == v1alpha1.ZoneFull && stateOf(s, "zone-d") == v1alpha1.ZoneClosed &&
			fullSince(s, "zone-c").Equal(full) && closedSince(s, "zone-d").Equal(dead)
	}
	w.waitStatus(p, "one zone is full and one is closed, by the first leader's times", reached)

	w.eventually("the standby is ready", func() (bool, string) {
		code, body, err := third.get(w.ctx, "/readyz")
		return code == 200, fmt.Sprint(code, body, err)
	})
	w.takeOver(second)
	w.scale(12)
	w.waitBoundCount(12, labelled("web"))
	w.requireSkew(1, labelled("web"), "zone-a", "zone-b")
	w.waitStatus(p, "the third leader has counted, and the states are as before", func(s *v1alpha1.ZoneSpreadPolicyStatus) bool {
		return s.Pods == 12 && reached(s)
	})
}
