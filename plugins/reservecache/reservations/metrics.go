package reservations

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/metrics"
)

// The gauges show what the status shows. A process that places no slots, such as a standby, has none of them, so that
// sums over replicas are right.
var (
	desiredDesc = reservationGauge("reservation_desired_slots", "Slots that a ZoneReservation asks for; 0 once it has expired.")
	heldDesc    = reservationGauge("reservation_held_slots", "Slots of a ZoneReservation that have a place on a node.")
	usedDesc    = reservationGauge("reservation_used_slots", "Held slots of a ZoneReservation with a pod of its owners in them.")
	// An old age is what an alert looks at.
	unfilledDesc = reservationGauge("reservation_unfilled_seconds", "Time for which a ZoneReservation has lacked slots; 0 when it lacks none, is invalid or has expired.")

	collected = metrics.NewCollector((*Reservations).collect, desiredDesc, heldDesc, usedDesc, unfilledDesc)
)

func reservationGauge(name, help string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc("reservecache", name, help, []string{"reservation"}, compbasemetrics.ALPHA)
}

func (s *Reservations) collect(send metrics.Send) {
	s.mu.Lock()
	uids := make([]types.UID, 0, len(s.entries))
	for uid := range s.entries {
		uids = append(uids, uid)
	}
	s.mu.Unlock()
	for _, uid := range uids {
		obj, status := s.desiredStatus(uid)
		if obj == nil {
			continue
		}
		send(desiredDesc, float64(status.Slots.Desired), obj.Name)
		send(heldDesc, float64(status.Slots.Held), obj.Name)
		send(usedDesc, float64(status.Slots.Used), obj.Name)
		send(unfilledDesc, s.unfilledFor(&status).Seconds(), obj.Name)
	}
}

// unfilledFor returns for how long a reservation has lacked slots, which outlives a restart with its condition.
func (s *Reservations) unfilledFor(status *v1alpha1.ZoneReservationStatus) time.Duration {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.ReasonInvalid || ready.Reason == v1alpha1.ReasonExpired {
		return 0
	}
	return max(s.clock.Since(ready.LastTransitionTime.Time), 0)
}
