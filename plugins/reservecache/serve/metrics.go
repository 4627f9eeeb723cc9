package serve

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/metrics"
)

// The gauges show what the status shows. A process that places no slots, such as a standby, has none of them, so that
// sums over replicas are right.
var (
	desiredDesc = reservationGauge("reservation_desired_slots",
		"Slots that a ZoneReservation asks for; 0 once it has expired.")
	heldDesc = reservationGauge("reservation_held_slots", "Slots of a ZoneReservation that have a place on a node.")
	usedDesc = reservationGauge("reservation_used_slots", "Held slots of a ZoneReservation that owners use.")
	// An old age is what an alert looks at.
	unfilledDesc = reservationGauge("reservation_unfilled_seconds",
		"Time for which a ZoneReservation has lacked slots; 0 when it lacks none, is invalid or has expired.")

	cpuDesc    = zoneGauge("held_cpu_cores", "CPU of the unused slots of all ZoneReservations in a zone.")
	memoryDesc = zoneGauge("held_memory_bytes", "Memory of the unused slots of all ZoneReservations in a zone.")

	collected = metrics.NewCollector((*Server).collect, desiredDesc, heldDesc, usedDesc, unfilledDesc, cpuDesc, memoryDesc)
)

func reservationGauge(name, help string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc("reservecache", name, help, []string{"reservation"}, compbasemetrics.ALPHA)
}

func zoneGauge(name, help string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc("reservecache", name, help, []string{"zone"}, compbasemetrics.ALPHA)
}

func (s *Server) collect(send metrics.Send) {
	if !s.placing.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for zone, unused := range s.held {
		send(cpuDesc, float64(unused.MilliCPU)/1000, zone)
		send(memoryDesc, float64(unused.Memory), zone)
	}
	for _, e := range s.entries {
		if e.heldBy != "" {
			continue
		}
		name := e.object.Latest.Name
		status := s.statusLocked(e, s.Clock.Now())
		send(desiredDesc, float64(status.Slots.Desired), name)
		send(heldDesc, float64(status.Slots.Held), name)
		send(usedDesc, float64(status.Slots.Used), name)
		send(unfilledDesc, s.unfilledFor(&status).Seconds(), name)
	}
}

// unfilledFor returns for how long a reservation has lacked slots, which outlives a restart with its condition.
func (s *Server) unfilledFor(status *v1alpha1.ZoneReservationStatus) time.Duration {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status == metav1.ConditionTrue ||
		ready.Reason == v1alpha1.ReasonInvalid || ready.Reason == v1alpha1.ReasonExpired {
		return 0
	}
	return max(s.Clock.Since(ready.LastTransitionTime.Time), 0)
}
