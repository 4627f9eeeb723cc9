package serve

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/floor"
)

// condition returns a condition.
func condition(kind string, value bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if value {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// conditionsLocked are the conditions of a reservation.
func (s *Server) conditionsLocked(e *entry) []metav1.Condition {
	expired := condition(v1alpha1.ConditionExpired, false, v1alpha1.ReasonNotExpired, "spec.ttl is not set")
	if !e.object.Valid() {
		const message = "nothing is held: the spec is invalid"
		return []metav1.Condition{
			condition(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalid, oneLine(e.object.Errs)),
			condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonInvalid, message), expired,
			condition(v1alpha1.ConditionProtected, false, v1alpha1.ReasonInvalid, message),
		}
	}
	deadline := e.object.Spec.deadline.UTC().Format(time.RFC3339)
	if e.expired {
		message := "nothing is held: spec.ttl passed at " + deadline
		return []metav1.Condition{
			condition(v1alpha1.ConditionAccepted, true, v1alpha1.ReasonAccepted, "the spec is valid"),
			condition(v1alpha1.ConditionReady, false, v1alpha1.ReasonExpired, message),
			condition(v1alpha1.ConditionExpired, true, v1alpha1.ReasonExpired, message),
			condition(v1alpha1.ConditionProtected, false, v1alpha1.ReasonExpired, message),
		}
	}
	if !e.object.Spec.deadline.IsZero() {
		expired.Message = "spec.ttl passes at " + deadline
	}
	return []metav1.Condition{acceptedCondition(e), readyCondition(e.report), expired, protectedCondition(e)}
}

// acceptedCondition says that the scheduler applies the reservation, and warns about oddities.
func acceptedCondition(e *entry) metav1.Condition {
	accepted := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionAccepted, true, reason, message)
	}
	if unreadable := e.object.Spec.unreadable; len(unreadable) > 0 {
		return condition(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalid, "these select no pods: "+oneLine(unreadable))
	}
	if winners := slices.Sorted(maps.Keys(e.survey.winners)); len(winners) > 0 {
		return accepted(v1alpha1.ReasonOwnersOverlap,
			"spec.owners: pods that an older reservation also selects belong to that one: "+joinNames(winners))
	}
	var unknown []string
	if e.report != nil && e.report.Claim.Zones != nil {
		for i := range e.report.Zones {
			if z := &e.report.Zones[i]; z.Unknown {
				unknown = append(unknown, z.Name)
			}
		}
	}
	if len(unknown) > 0 {
		return accepted(v1alpha1.ReasonZonesWithoutNodes,
			"spec.zones: no node has "+v1.LabelTopologyZone+"="+joinNames(unknown))
	}
	return accepted(v1alpha1.ReasonAccepted, "the scheduler applies the reservation")
}

// readyCondition says whether all that is desired is held, and why not.
func readyCondition(r *floor.Report) metav1.Condition {
	not := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, false, reason, message)
	}
	if r == nil {
		return not(v1alpha1.ReasonNotPlacedYet, "the scheduler has not looked at it yet")
	}
	if r.Held >= r.Desired {
		message := fmt.Sprintf("%d unused slots are held", r.Held)
		if r.Claim.Inclusive {
			message = fmt.Sprintf("%d slots are held, %d of them are used", r.Held, r.Used)
		}
		return condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAllHeld, message)
	}
	var shortfalls, capped []string
	usable, lost := 0, false
	for i := range r.Zones {
		z := &r.Zones[i]
		usable += z.Usable
		if z.Capped {
			capped = append(capped, z.Name)
		}
		switch lacks := z.Desired - z.Held; {
		case lacks <= 0:
		case z.Usable == 0:
			lost = lost || !z.Unknown
			shortfalls = append(shortfalls, fmt.Sprintf("zone %s lacks %d and has no node that may have slots", z.Name, lacks))
		default:
			shortfalls = append(shortfalls, fmt.Sprintf("zone %s lacks %d, for which its %d nodes have no room", z.Name, lacks, z.Usable))
		}
	}
	message := fmt.Sprintf("%d of %d slots are missing", r.Desired-r.Held, r.Desired)
	if len(shortfalls) > 0 {
		message += ": " + joinFirst(shortfalls, "; ")
	}
	if kept := r.KeptSlots(); kept > 0 {
		message += fmt.Sprintf("; %d slots from before the spec was edited are held meanwhile", kept)
	}
	switch {
	case usable > 0 && !r.Fits:
		return not(v1alpha1.ReasonFitsNoNode, "spec.slot: larger than any node that it may be on: "+message)
	case len(capped) > 0:
		return not(v1alpha1.ReasonHeldFractionReached, "the scheduler's maxHeldFraction allows no more to be held in zone "+joinNames(capped)+": "+message)
	case lost:
		return not(v1alpha1.ReasonZoneLost, message)
	}
	return not(v1alpha1.ReasonFilling, message)
}

// protectedCondition says whether the slots are kept from all pods that are no owners.
func protectedCondition(e *entry) metav1.Condition {
	if e.survey.outranking != "" && e.survey.above > e.priority {
		return condition(v1alpha1.ConditionProtected, false, v1alpha1.ReasonOutranked, fmt.Sprintf(
			"spec.priority: the slots have priority %d, and pods of a higher one may take their room, such as %s with priority %d",
			e.priority, e.survey.outranking, e.survey.above))
	}
	return condition(v1alpha1.ConditionProtected, true, v1alpha1.ReasonProtected, "no pod outranks the slots but their owners")
}

// joinNames joins the first of many names.
func joinNames(names []string) string { return joinFirst(names, ", ") }

func joinFirst(names []string, separator string) string {
	const shown = 10
	if len(names) <= shown {
		return strings.Join(names, separator)
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], separator), len(names)-shown)
}

// oneLine joins errors for a condition.
func oneLine(errs field.ErrorList) string {
	const shown = 3
	line := ""
	for i, err := range errs {
		if i == shown {
			return fmt.Sprintf("%s; and %d more", line, len(errs)-shown)
		}
		if i > 0 {
			line += "; "
		}
		line += err.Error()
	}
	return line
}
