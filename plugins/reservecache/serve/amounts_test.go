package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// TestStatusOfAmounts: the sums, and the nodes that have consumers or something else than desired.
func TestStatusOfAmounts(t *testing.T) {
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

	require.NoError(t, f.Holds.Take("p", "n1", "uid-r", ledger.Resources{MilliCPU: 1500, Pods: 1}, nil))
	f.add(t, makePod("p", "n1", "1500m", map[string]string{"app": "web"}))
	f.requireSlots(t, "r", 3, 1)
	s = f.status("r")
	require.Len(t, s.Zones[0].Nodes, 1)
	n := s.Zones[0].Nodes[0]
	require.Equal(t, "n1", n.Name)
	require.Len(t, n.Amounts.Consumers, 1)
	require.Equal(t, types.UID("p"), n.Amounts.Consumers[0].UID)
	requireAmount(t, amount("cpu", "1500m", "pods", "1"), n.Amounts.Consumers[0].Amount)
	requireAmount(t, amount("cpu", "3", "pods", "2"), n.Amounts.Desired)
	requireAmount(t, amount("cpu", "3", "pods", "2"), n.Amounts.Held)
	requireAmount(t, amount("cpu", "1500m", "pods", "1"), n.Amounts.Used)
	requireAmount(t, n.Amounts.Used, s.Zones[0].Amounts.Used)
	require.Equal(t, "all amounts are held (1500m cpu, 1 place for a pod of them used)",
		f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld))

	f.add(t, makePod("by-hand", "n1", "2", nil))
	require.Equal(t, "1 cpu missing on 1 nodes (1500m cpu, 1 place for a pod of them used): zone a: 1 cpu of 3500m cpu, 3 places for pods: 1 node short of cpu",
		f.requireCondition(t, "r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling))
	require.Contains(t, f.requireCondition(t, "r", v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonOvercommitted),
		"amounts have lost their room and have no other place yet: node n1: pod shop/by-hand")
}

// TestAdoptionOfAmounts: a new leader has what the status says, and holds on the nodes that it leaves out what the spec says. An owner that was
// bound since the status was written uses what it lacks.
func TestAdoptionOfAmounts(t *testing.T) {
	at := t0.Add(-time.Minute)
	r := reservation("r", 0, amountsOn(func(r *v1alpha1.ZoneReservation) { r.Spec.Nodes[0].Pods = 2 }))
	r.Status = v1alpha1.ZoneReservationStatus{
		ObservedGeneration: 1, LastUpdateTime: metav1.NewMicroTime(at), Zones: []v1alpha1.ReservationZoneStatus{{
			Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{{Name: "n1", Amounts: v1alpha1.ReservationNodeAmounts{
				ReservationAmounts: v1alpha1.ReservationAmounts{Held: amount("cpu", "3", "pods", "2")},
				Consumers:          []v1alpha1.ReservationConsumer{{UID: "one", Amount: amount("cpu", "1", "pods", "1")}, {UID: "gone", Amount: amount("cpu", "1")}},
			}}},
		}},
	}
	f := newFixture(t, 1, r, reservation("older", 4, func(r *v1alpha1.ZoneReservation) {
		r.CreationTimestamp = metav1.NewTime(t0.Add(-time.Hour))
		r.Spec.Owners[0].Namespace = "other"
	}))
	f.Ledger.AddNode(makeNode("n1", "4"))
	f.Ledger.AddNode(makeNode("n2", "1"))
	late := replica("late", "700m", at.Add(time.Second))
	f.add(t, replica("one", "1", at.Add(-time.Second)), replica("steady", "1", at.Add(-time.Hour)), late)
	f.start(t)
	f.requireSlots(t, "r", 3, 2)
	status, _ := f.Holds.Status("uid-r")
	require.Equal(t, "n1", status.Nodes[0].Node)
	require.Equal(t, ledger.Resources{MilliCPU: 3000, Pods: 2}, status.Nodes[0].Amount)
	require.Len(t, status.Nodes[0].Consumers, 2)
	require.Equal(t, ledger.Resources{MilliCPU: 1000, Pods: 1}, status.Nodes[0].Consumers[0].Took)
	require.Equal(t, types.UID("late"), status.Nodes[0].Consumers[1].UID)
	require.Equal(t, ledger.Resources{MilliCPU: 700, Pods: 1}, status.Nodes[0].Consumers[1].Took)
	require.Equal(t, ledger.Resources{MilliCPU: 500, Pods: 1}, status.Nodes[1].Amount, "an older reservation that lacks slots does not get it")
}

// TestAdoptionOfAmountsByLateOwners: of several that were bound since the status was written each uses what it lacked beside those before it.
func TestAdoptionOfAmountsByLateOwners(t *testing.T) {
	at := t0.Add(-time.Minute)
	r := reservation("r", 0, amountsOn(func(r *v1alpha1.ZoneReservation) { r.Spec.Nodes[0].Pods = 2 }))
	r.Status = v1alpha1.ZoneReservationStatus{ObservedGeneration: 1, LastUpdateTime: metav1.NewMicroTime(at)}
	f := newFixture(t, 1, r)
	f.Ledger.AddNode(makeNode("n1", "4"))
	f.Ledger.AddNode(makeNode("n2", "1"))
	f.add(t, replica("second", "1500m", at.Add(2*time.Second)), replica("first", "1500m", at.Add(time.Second)))
	f.start(t)
	f.requireSlots(t, "r", 3, 2)
	took := map[types.UID]ledger.Resources{}
	for _, c := range f.Holds.StatusOn("uid-r", "n1").Consumers {
		took[c.UID] = c.Took
	}
	require.Equal(t, map[types.UID]ledger.Resources{"first": {MilliCPU: 500, Pods: 1}, "second": {MilliCPU: 1500, Pods: 1}}, took)
}

// TestAmountsThatFollow: the spec changes while a pod uses a part. The part stays used.
func TestAmountsThatFollow(t *testing.T) {
	r := reservation("r", 0, amountsOn(nil))
	f := newFixture(t, 1, r)
	f.Ledger.AddNode(makeNode("n1", "4"))
	f.Ledger.AddNode(makeNode("n2", "4"))
	f.start(t)
	f.requireSlots(t, "r", 2, 0)
	require.NoError(t, f.Holds.Take("p", "n1", "uid-r", oneCPU(1), nil))
	f.add(t, makePod("p", "n1", "1", map[string]string{"app": "web"}))
	for generation, cpu := range []string{"500m", "2"} {
		now := r.DeepCopy()
		now.Generation, now.Spec.Nodes = int64(generation+2), onNodes("n1", cpu)
		now.Status = f.status("r")
		f.api.Put(now)
		f.eventually(t, "r", func(t require.TestingT, s *v1alpha1.ZoneReservationStatus) {
			require.Equal(t, now.Generation, s.ObservedGeneration)
			requireAmount(t, amount("cpu", map[string]string{"500m": "1", "2": "2"}[cpu], "pods", "1"), s.Amounts.Held)
			requireAmount(t, amount("cpu", "1", "pods", "1"), s.Amounts.Used)
		})
	}
}
