package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// TestUsesSinceTheReportAreAdopted: a status is written later than its report was made, and does not name who came between.
func TestUsesSinceTheReportAreAdopted(t *testing.T) {
	f := newFixture(t, 1)
	f.placing.Store(true)
	f.Ledger.AddNode(makeNode("n1", "4"))
	f.seen(reservation("r", 2, guarantee))
	f.clock.Step(700 * time.Millisecond)
	f.pass(t.Context())
	f.clock.Step(250 * time.Millisecond)
	between := replica("between", "1", t0) // the API server says so in whole seconds
	require.NoError(t, f.Holds.Take("between", "n1", "uid-r", oneCPU(1), nil))
	f.add(t, between)
	f.clock.Step(100 * time.Millisecond)
	_, is, ok := f.wantedStatus("uid-r")
	require.True(t, ok)
	require.EqualValues(t, 2, is.Status.Slots.Held)
	require.Empty(t, consumers(&is.Status))

	next := newFixture(t, 1, is)
	next.Ledger.AddNode(makeNode("n1", "4"))
	next.add(t, between)
	next.start(t)
	next.requireSlots(t, "r", 2, 1)
}

// TestALostZoneIsAdopted: a new leader, which never saw the nodes of a lost zone, does not spread its slots over the others.
func TestALostZoneIsAdopted(t *testing.T) {
	r := reservation("r", 4, func(r *v1alpha1.ZoneReservation) { r.Spec.OnZoneLoss = v1alpha1.ZoneLossKeep })
	r.Status.ObservedGeneration, r.Status.LastUpdateTime = 1, metav1.NewMicroTime(t0)
	for _, zone := range []string{"a", "b"} {
		r.Status.Zones = append(r.Status.Zones, v1alpha1.ReservationZoneStatus{Name: zone, SlotCounts: v1alpha1.SlotCounts{Desired: 2}})
	}
	f := newFixture(t, 1, r)
	f.Ledger.AddNode(makeNode("n1", "8")) // of zone a
	f.start(t)
	f.requireSlots(t, "r", 2, 0)
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
		}, held: 4, used: 2}, // zone b is lost, and its slots are shifted
		"where it may have slots": {change: func(r *v1alpha1.ZoneReservation) {
			guarantee(r)
			r.Spec.Slot.NodeSelector = map[string]string{"pool": "x"}
		}},
	} {
		t.Run(name, func(t *testing.T) {
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
	}
}
