package reservations

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// TestMetrics: slots by reservation, from the process that places them, for as long as the reservation is there.
func TestMetrics(t *testing.T) {
	s := New(ledger.New(ledger.DefaultOptions()), nil)
	obj := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: "metered", UID: "metered"},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "shop", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Slots:  ptr.To[int32](5),
		},
	}
	compiled, errs := compile(obj, false)
	require.Empty(t, errs)
	s.served = true
	s.entries[obj.UID] = &entry{obj: obj, spec: compiled, report: &placement.Report{Held: 3, Used: 1}}
	collected.Export(t.Context(), s)
	const want = `
# HELP zonewise_reservecache_reservation_desired_slots [ALPHA] Slots that a ZoneReservation asks for; 0 once it has expired.
# TYPE zonewise_reservecache_reservation_desired_slots gauge
zonewise_reservecache_reservation_desired_slots{reservation="metered"} 5
# HELP zonewise_reservecache_reservation_held_slots [ALPHA] Slots of a ZoneReservation that have a place on a node.
# TYPE zonewise_reservecache_reservation_held_slots gauge
zonewise_reservecache_reservation_held_slots{reservation="metered"} 3
# HELP zonewise_reservecache_reservation_used_slots [ALPHA] Held slots of a ZoneReservation with a pod of its owners in them.
# TYPE zonewise_reservecache_reservation_used_slots gauge
zonewise_reservecache_reservation_used_slots{reservation="metered"} 1
`
	names := []string{"zonewise_reservecache_reservation_desired_slots", "zonewise_reservecache_reservation_held_slots", "zonewise_reservecache_reservation_used_slots"}
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(""), names...), "a standby")
	s.placing.Store(true)
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(want), names...))
	s.gone(obj)
	require.NoError(t, testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(""), names...), "a deleted reservation")
}
