package reservations

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// Bounds of the lists of a status, as the CustomResourceDefinition has them.
const (
	maxZones = 1000
	maxNodes = 500
	// maxMessage bounds the messages of conditions, in bytes.
	maxMessage = 1024
)

// desiredStatus returns a reservation as last seen and the status that it should have; nil for one that is gone, and while
// this process places no slots and so knows nothing of them.
func (s *Reservations) desiredStatus(uid types.UID) (*v1alpha1.ZoneReservation, v1alpha1.ZoneReservationStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[uid]
	if !ok || !s.served || !s.placing.Load() || e.obj.DeletionTimestamp != nil {
		return nil, v1alpha1.ZoneReservationStatus{}
	}
	return e.obj, e.status(s.clock.Now())
}

// status computes the status of a reservation. The previous one is only looked at for the times at which conditions
// changed, and kept where the reservation is not applied, so that equal observations give equal statuses.
func (e *entry) status(now time.Time) v1alpha1.ZoneReservationStatus {
	status := v1alpha1.ZoneReservationStatus{
		ObservedGeneration: e.obj.Generation,
		Conditions:         slices.Clone(e.obj.Status.Conditions),
	}
	set := func(kind string, value bool, reason, message string) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, ObservedGeneration: e.obj.Generation, Reason: reason, Message: truncate(message), LastTransitionTime: metav1.NewTime(now).Rfc3339Copy()}
		if value {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	switch {
	case e.spec == nil:
		set(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalid, oneLine(e.errs))
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonInvalid, "nothing is held: the spec is invalid")
		set(v1alpha1.ConditionDegraded, false, v1alpha1.ReasonInvalid, "nothing is held: the spec is invalid")
		set(v1alpha1.ConditionExpired, false, v1alpha1.ReasonNotExpired, "spec.ttl has not passed")
		return status
	case e.over:
		message := "nothing is held any more: spec.ttl passed at " + e.spec.deadline.UTC().Format(time.RFC3339)
		set(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the spec is valid")
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonExpired, message)
		set(v1alpha1.ConditionDegraded, false, v1alpha1.ReasonExpired, message)
		set(v1alpha1.ConditionExpired, true, v1alpha1.ReasonExpired, message)
		return status
	}
	status.Slots = v1alpha1.SlotCounts{Desired: int64(e.spec.slots)}
	if e.report != nil {
		status.Slots.Held, status.Slots.Used = int64(e.report.Held), int64(e.report.Used)
		status.Zones = zones(e.report)
	}
	value, reason, message := e.accepted()
	set(v1alpha1.ConditionAccepted, value, reason, message)
	value, reason, message = e.ready()
	set(v1alpha1.ConditionReady, value, reason, message)
	value, reason, message = e.degraded()
	set(v1alpha1.ConditionDegraded, value, reason, message)
	if e.spec.deadline.IsZero() {
		set(v1alpha1.ConditionExpired, false, v1alpha1.ReasonNotExpired, "spec.ttl is not set")
	} else {
		set(v1alpha1.ConditionExpired, false, v1alpha1.ReasonNotExpired, "spec.ttl passes at "+e.spec.deadline.UTC().Format(time.RFC3339))
	}
	return status
}

// accepted tells whether the scheduler applies the reservation, and what is odd about it.
func (e *entry) accepted() (value bool, reason, message string) {
	if e.refused != nil {
		return false, v1alpha1.ReasonInvalid, e.refused.Error()
	}
	if len(e.overlaps) > 0 {
		return true, v1alpha1.ReasonOwnersOverlap, "spec.owners: a pod that an older reservation names as well belongs to that one: " + strings.Join(e.overlaps, ", ")
	}
	if e.report != nil && len(e.spec.zones) > 0 {
		var unknown []string
		for i := range e.report.Zones {
			if z := &e.report.Zones[i]; z.Unknown {
				unknown = append(unknown, z.Name)
			}
		}
		if len(unknown) > 0 {
			return true, v1alpha1.ReasonZonesWithoutNodes, "spec.zones: no node has " + v1.LabelTopologyZone + "=" + strings.Join(unknown, ", ")
		}
	}
	return true, v1alpha1.ReasonAccepted, "the scheduler applies the reservation"
}

// ready tells whether all slots that are wanted are held, and why not.
func (e *entry) ready() (value bool, reason, message string) {
	switch r := e.report; {
	case e.refused != nil:
		return false, v1alpha1.ReasonInvalid, "nothing is held: the spec is invalid"
	case r == nil:
		return false, v1alpha1.ReasonNotPlacedYet, "the scheduler has not placed slots yet"
	case r.Missing == 0 && e.spec.mode == ledger.Headroom:
		return true, v1alpha1.ReasonAllHeld, fmt.Sprintf("%d unused slots are held", r.Held-r.Used)
	case r.Missing == 0:
		return true, v1alpha1.ReasonAllHeld, fmt.Sprintf("%d slots are held, %d of them are used", r.Held, r.Used)
	case r.FitsNoNode:
		return false, v1alpha1.ReasonFitsNoNode, "spec.slot: larger than any node that it may be on: " + r.Shortfalls()
	case r.WaitsFor != "":
		return false, v1alpha1.ReasonWaiting, fmt.Sprintf("%s; room that becomes free goes to %s first", e.lacks(), r.WaitsFor)
	default:
		for i := range r.Zones {
			if r.Zones[i].Lost && !r.Zones[i].Unknown {
				return false, v1alpha1.ReasonZoneLost, e.lacks()
			}
		}
		return false, v1alpha1.ReasonFilling, e.lacks()
	}
}

// lacks says how many slots are missing, and why.
func (e *entry) lacks() string {
	line := fmt.Sprintf("%d of %d slots are missing", e.report.Missing, e.report.Desired)
	if e.spec.mode == ledger.Headroom && e.report.Used > 0 {
		line += fmt.Sprintf(" (%d are used)", e.report.Used)
	}
	if why := e.report.Shortfalls(); why != "" {
		line += ": " + why
	}
	return line
}

// degraded tells whether slots that were held can not be relied on.
func (e *entry) degraded() (value bool, reason, message string) {
	switch r := e.report; {
	case r == nil || r.Missing == 0:
	case len(e.crowded) > 0:
		return true, v1alpha1.ReasonOvercommitted, "slots have lost their room to pods of a higher priority or of another scheduler, or the node has shrunk, and have no other place yet: node " +
			some(slices.Sorted(maps.Keys(e.crowded)))
	case len(e.lost) > 0:
		return true, v1alpha1.ReasonNodesLost, "slots have no place any more since these nodes went: " + some(slices.Sorted(maps.Keys(e.lost)))
	}
	return false, v1alpha1.ReasonAsDesired, "all held slots have their room"
}

// some joins the first of many names.
func some(names []string) string {
	const shown = 10
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

// zones returns what is wanted and held in each zone, and on which nodes.
func zones(r *placement.Report) []v1alpha1.ReservationZoneStatus {
	zones := make([]v1alpha1.ReservationZoneStatus, 0, len(r.Zones))
	for i := range r.Zones[:min(len(r.Zones), maxZones)] {
		z := &r.Zones[i]
		status := v1alpha1.ReservationZoneStatus{
			Name:       z.Name,
			SlotCounts: v1alpha1.SlotCounts{Desired: int64(z.Desired), Held: int64(z.Held), Used: int64(z.Used)},
		}
		for _, n := range z.Nodes[:min(len(z.Nodes), maxNodes)] {
			status.Nodes = append(status.Nodes, v1alpha1.ReservationNodeStatus{Name: n.Name, Slots: int64(n.Slots), Used: int64(n.Used)})
		}
		zones = append(zones, status)
	}
	return zones
}

// truncate cuts a message that would be too long for a condition.
func truncate(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return message[:maxMessage-4] + " ..."
}
