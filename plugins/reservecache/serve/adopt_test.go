package serve

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
)

// TestAdoptionOfHeadroom: a status of before names the slots that pods had taken, too. What has been taken since the status was written is not
// held again.
func TestAdoptionOfHeadroom(t *testing.T) {
	for name, tc := range map[string]struct {
		node  v1alpha1.ReservationNodeStatus
		cpus  string // of n1
		holds int
	}{
		"as it was":         {node: v1alpha1.ReservationNodeStatus{Slots: 3}, cpus: "4", holds: 3},
		"of before":         {node: v1alpha1.ReservationNodeStatus{Slots: 3, Used: 1}, cpus: "4", holds: 2},
		"one is taken":      {node: v1alpha1.ReservationNodeStatus{Slots: 3}, cpus: "3", holds: 2},
		"all are taken":     {node: v1alpha1.ReservationNodeStatus{Slots: 3}, cpus: "1"},
		"the node has gone": {node: v1alpha1.ReservationNodeStatus{Slots: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := reservation("r", 3, nil)
				tc.node.Name = "n1"
				r.Status = v1alpha1.ZoneReservationStatus{LastUpdateTime: metav1.NewMicroTime(t0), Zones: []v1alpha1.ReservationZoneStatus{{
					Name: "a", Nodes: []v1alpha1.ReservationNodeStatus{tc.node},
				}}}
				f := newFixture(t, 1, r)
				if tc.cpus != "" {
					f.Ledger.AddNode(makeNode("n1", tc.cpus))
				}
				f.add(t, replica("one", "1", t0))
				f.Planner.Set((&spec{uid: "uid-r", slot: slotOf(1), requirements: everyNode}).target(0))
				f.Ledger.UpdateSnapshot(f.snapshot)
				compiled, errs := compile(r)
				require.Empty(t, errs)
				f.adoptStatuses([]applying{{entry: &entry{}, spec: compiled, status: &r.Status}})
				on := f.Holds.StatusOn("uid-r", "n1")
				require.Equal(t, tc.holds, on.Slots())
				require.Empty(t, f.handle.recorder.Events)
			})
		})
	}
}

func slotOf(cpus int64) ledger.Resources { return ledger.Resources{MilliCPU: 1000 * cpus, Pods: 1} }

// TestALostZoneIsAdopted: a new leader, which never saw the nodes of a lost zone, does not spread its slots over the others.
func TestALostZoneIsAdopted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := reservation("r", 4, func(r *v1alpha1.ZoneReservation) { r.Spec.OnZoneLoss = v1alpha1.ZoneLossKeep })
		r.Status.ObservedGeneration, r.Status.LastUpdateTime = 1, metav1.NewMicroTime(t0)
		for _, zone := range []string{"a", "b"} {
			r.Status.Zones = append(r.Status.Zones, v1alpha1.ReservationZoneStatus{Name: zone, SlotCounts: v1alpha1.SlotCounts{Desired: 2}})
		}
		f := newFixture(t, 1, r)
		f.Ledger.AddNode(makeNode("n1", "8")) // of zone a
		f.start(t)
		f.requireSlots(t, "r", 2, 0)
	})
}

// TestANewGuaranteeCountsWhoRuns: it does not hold room a second time for owners that run already, as far as it has slots for them.
func TestANewGuaranteeCountsWhoRuns(t *testing.T) {
	for name, tc := range map[string]struct {
		change     func(*v1alpha1.ZoneReservation)
		held, used int64
	}{
		"all of them":            {change: guarantee, held: 4, used: 3},
		"of Required":            {change: func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerRequired }, held: 4, used: 3},
		"headroom is for others": {change: nil, held: 4, used: 0},
		"one a node": {change: func(r *v1alpha1.ZoneReservation) {
			guarantee(r)
			r.Spec.SlotsPerNode = ptr.To[int32](1)
		}, held: 1, used: 1},
		"in its zones": {change: func(r *v1alpha1.ZoneReservation) {
			guarantee(r)
			r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}
		}, held: 4, used: 3}, // zone b is lost, and its slots are shifted
		"where it may have slots": {change: func(r *v1alpha1.ZoneReservation) {
			guarantee(r)
			r.Spec.Slot.NodeSelector = map[string]string{"pool": "x"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, 1, reservation("r", 4, tc.change))
				f.Ledger.AddNode(makeNode("n1", "8"))
				for _, name := range []string{"one", "two", "three"} {
					_, err := f.Ledger.AddPod(replica(name, "1", t0))
					require.NoError(t, err)
					require.NoError(t, f.handle.factory.Core().V1().Pods().Informer().GetStore().Add(replica(name, "1", t0)))
				}
				f.start(t)
				f.requireSlots(t, "r", tc.held, tc.used)
			})
		})
	}
}
