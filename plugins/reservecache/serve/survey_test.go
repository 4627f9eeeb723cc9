package serve

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestOwnersPerNodeAreCountedAnew: owners that go while slotsPerNode is not set do not count when it is set again.
func TestOwnersPerNodeAreCountedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1)
		f.placing.Store(true)
		f.Ledger.AddNode(makeNode("n1", "4"))
		generation := int64(0)
		slots := func(perNode *int32) int {
			generation++
			f.reservationSeen(reservation("r", 1, func(r *v1alpha1.ZoneReservation) { r.Generation, r.Spec.SlotsPerNode = generation, perNode }))
			f.pass(t.Context())
			on := f.Holds.StatusOn("uid-r", "n1")
			return on.Slots()
		}
		require.Equal(t, 1, slots(ptr.To[int32](1)))
		f.add(t, replica("owner", "1", t0))
		require.Equal(t, 0, slots(ptr.To[int32](1)), "the owner is the one that the node may have")
		require.Equal(t, 1, slots(nil))
		f.end(t, "owner")
		require.Equal(t, 1, slots(ptr.To[int32](1)))
	})
}

// TestPodsThatTwoReservationsSelect belong to the older one, and the younger says so while there are any.
func TestPodsThatTwoReservationsSelect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		younger := reservation("young", 1, func(r *v1alpha1.ZoneReservation) { r.CreationTimestamp = metav1.Unix(t0.Unix()+1, 0) })
		f := newFixture(t, 1, reservation("old", 1, nil), younger)
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.start(t)
		f.requireCondition(t, "young", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		f.add(t, replica("owner", "1", t0))
		require.Equal(t, "spec.owners: pods that an older reservation also selects belong to that one: old",
			f.requireCondition(t, "young", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonOwnersOverlap))
		f.requireCondition(t, "old", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
		f.end(t, "owner")
		f.requireCondition(t, "young", v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	})
}
