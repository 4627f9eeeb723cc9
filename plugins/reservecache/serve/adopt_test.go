package serve

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
