package serve

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
)

// amount is a list of the API, given as pairs.
func amount(pairs ...string) v1.ResourceList {
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[v1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return list
}

// requireAmount compares amounts by value.
func requireAmount(t require.TestingT, want, got v1.ResourceList) {
	is, should := ledger.ResourcesOf(got), ledger.ResourcesOf(want)
	require.True(t, is.Equal(&should), "%v, should be %v", got, want)
}

// TestStatusOfAmounts: the sums, and the nodes that have something else than desired.
func TestStatusOfAmounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, 1, reservation("r", 0, amountsOn(func(r *v1alpha1.ZoneReservation) { r.Spec.Nodes[0].Pods = 2 })))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.Ledger.AddNode(makeNode("n2", "4"))
		f.start(t)
		require.Equal(t, "all amounts are held", f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld))
		s := f.status("r")
		require.Equal(t, v1alpha1.SlotCounts{Desired: 3, Held: 3}, s.Slots, "places for pods")
		requireAmount(t, amount("cpu", "3500m", "pods", "3"), s.Amounts.Held)
		require.Len(t, s.Zones, 1)
		require.Empty(t, s.Zones[0].Nodes)

		f.add(t, makePod("p", "n1", "1500m", map[string]string{"app": "web"}))
		f.requireSlots(t, "r", 3, 1)
		s = f.status("r")
		require.Empty(t, s.Zones[0].Nodes, "what is held is what is desired")
		requireAmount(t, amount("cpu", "1500m", "pods", "1"), s.Zones[0].Amounts.Used)
		require.Equal(t, "all amounts are held (1500m cpu, 1 place for a pod of them used)",
			f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld))

		f.add(t, makePod("by-hand", "n1", "2", nil))
		require.Equal(t, "1 cpu missing on 1 nodes (1500m cpu, 1 place for a pod of them used): zone a: 1 cpu of 3500m cpu, 3 places for pods: 1 node short of cpu",
			f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling))
		require.Contains(t, f.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonOvercommitted),
			"amounts have lost their room and have no other place yet: node n1: pod shop/by-hand")
		s = f.status("r")
		require.Len(t, s.Zones[0].Nodes, 1)
		n := s.Zones[0].Nodes[0]
		require.Equal(t, "n1", n.Name)
		requireAmount(t, amount("cpu", "3", "pods", "2"), n.Amounts.Desired)
		requireAmount(t, amount("cpu", "2", "pods", "2"), n.Amounts.Held)
		requireAmount(t, amount("cpu", "1500m", "pods", "1"), n.Amounts.Used)
	})
}

// TestAdoptionOfAmounts: a new leader has what the status says, and holds on the nodes that it leaves out what the spec says, as far as there is
// room.
func TestAdoptionOfAmounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reservation("r", 0, amountsOn(func(r *v1alpha1.ZoneReservation) { r.Spec.Nodes[0].Pods = 2 }))
		r.Status = v1alpha1.ZoneReservationStatus{
			ObservedGeneration: 1, LastUpdateTime: metav1.NewMicroTime(t0), Zones: []v1alpha1.ReservationZoneStatus{{
				Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n1", Amounts: v1alpha1.ReservationAmounts{Held: amount("cpu", "2", "pods", "2")}}},
			}},
		}
		f := newFixture(t, 1, r, reservation("older", 4, func(r *v1alpha1.ZoneReservation) {
			r.CreationTimestamp = metav1.NewTime(t0.Add(-time.Hour))
			r.Spec.Owners[0].Namespace = "other"
		}))
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.Ledger.AddNode(makeNode("n2", "1"))
		f.add(t, replica("one", "1", t0), makePod("stranger", "n1", "1500m", nil))
		f.start(t)
		f.requireSlots(t, "older", 0, 0)
		f.requireSlots(t, "r", 3, 1)
		nodes, _ := f.Holds.Status("uid-r")
		require.Equal(t, "n1", nodes[0].Node)
		require.Equal(t, ledger.Resources{MilliCPU: 2500, Pods: 2}, nodes[0].Amount, "and what there is room for beside it")
		require.Equal(t, ledger.Resources{MilliCPU: 500, Pods: 1}, nodes[1].Amount, "an older reservation that lacks slots does not get it")
	})
}

// TestAmountsThatFollow: the spec changes while a pod runs that the amount includes.
func TestAmountsThatFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reservation("r", 0, amountsOn(nil))
		f := newFixture(t, 1, r)
		f.Ledger.AddNode(makeNode("n1", "4"))
		f.Ledger.AddNode(makeNode("n2", "4"))
		f.start(t)
		f.requireSlots(t, "r", 2, 0)
		f.add(t, makePod("p", "n1", "1", map[string]string{"app": "web"}))
		for generation, cpu := range []string{"500m", "2"} {
			now := r.DeepCopy()
			now.Generation, now.Spec.Nodes = int64(generation+2), onNodes("n1", cpu)
			now.Status = f.status("r")
			f.api.Put(now)
			f.eventually(t, "r", func(t require.TestingT, s *v1alpha1.ZoneReservationStatus) {
				require.Equal(t, now.Generation, s.ObservedGeneration)
				for _, c := range s.Conditions {
					require.Equal(t, now.Generation, c.ObservedGeneration, c.Type)
				}
				requireAmount(t, amount("cpu", cpu, "pods", "1"), s.Amounts.Held)
				requireAmount(t, amount("cpu", map[string]string{"500m": "500m", "2": "1"}[cpu], "pods", "1"), s.Amounts.Used)
			})
		}
	})
}
