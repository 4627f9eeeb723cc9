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
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/placement"
)

// condition returns a condition.
func condition(kind string, value bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if value {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// conditions are the conditions of a reservation.
func (e *entry) conditions() []metav1.Condition {
	expired := condition(v1alpha1.ConditionExpired, false, v1alpha1.ReasonNotExpired, "spec.ttl has not passed")
	if e.valid == nil {
		return e.nothingHeld(v1alpha1.ReasonInvalid, "nothing is held: the spec is invalid", expired)
	}
	deadline := e.valid.deadline.UTC().Format(time.RFC3339)
	switch {
	case e.expired:
		message := "nothing is held: spec.ttl passed at " + deadline
		expired = condition(v1alpha1.ConditionExpired, true, v1alpha1.ReasonExpired, message)
		return e.nothingHeld(v1alpha1.ReasonExpired, message, expired)
	case e.valid.deadline.IsZero():
		expired.Message = "spec.ttl is not set"
	default:
		expired.Message = "spec.ttl passes at " + deadline
	}
	return []metav1.Condition{
		e.acceptedCondition(), e.readyCondition(), e.degradedCondition(), expired,
		e.ownersDoNotFitCondition(), e.protectedCondition(),
	}
}

// nothingHeld are the conditions of a reservation that holds nothing.
func (e *entry) nothingHeld(reason, message string, expired metav1.Condition) []metav1.Condition {
	return []metav1.Condition{
		e.acceptedCondition(),
		condition(v1alpha1.ConditionReady, false, reason, message),
		condition(v1alpha1.ConditionDegraded, false, reason, message),
		expired,
		condition(v1alpha1.ConditionOwnersDoNotFit, false, reason, message),
		condition(v1alpha1.ConditionProtected, false, reason, message),
	}
}

// acceptedCondition says whether the scheduler applies the reservation, and warns about oddities.
func (e *entry) acceptedCondition() metav1.Condition {
	accepted := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionAccepted, true, reason, message)
	}
	if !e.object.Valid() {
		message := oneLine(e.object.Errs)
		if e.valid != nil && !e.expired {
			message = "the spec before this one still applies: " + message
		}
		return condition(v1alpha1.ConditionAccepted, false, v1alpha1.ReasonInvalid, message)
	}
	if e.expired {
		return accepted(v1alpha1.ReasonAccepted, "the spec is valid")
	}
	if winners := slices.Sorted(maps.Keys(e.survey.winners)); len(winners) > 0 {
		return accepted(v1alpha1.ReasonOwnersOverlap,
			"spec.owners: pods that an older reservation also selects belong to that one: "+joinNames(winners))
	}
	var unknown []string
	if e.report != nil && len(e.valid.zones) > 0 {
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
func (e *entry) readyCondition() metav1.Condition {
	r := e.report
	ready := func(message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, true, v1alpha1.ReasonAllHeld, message)
	}
	not := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionReady, false, reason, message)
	}
	switch {
	case r == nil || e.applied != e.valid:
		return not(v1alpha1.ReasonNotPlacedYet, "the scheduler has not placed slots yet")
	case r.Missing.IsZero() && e.applied.nodes != nil:
		return ready("all amounts are held" + e.usedInWords())
	case r.Missing.IsZero() && e.applied.use == holds.UseLast:
		return ready(fmt.Sprintf("%d unused slots are held", r.Held.Pods))
	case r.Missing.IsZero():
		return ready(fmt.Sprintf("%d slots are held, %d of them are used", r.Held.Pods, r.Used.Pods))
	case r.FitsNoNode:
		return not(v1alpha1.ReasonFitsNoNode, "spec.slot: larger than any node that it may be on: "+r.Shortfalls())
	}
	for i := range r.Zones {
		if r.Zones[i].Lost && !r.Zones[i].Unknown && r.Zones[i].Shortfall != "" {
			return not(v1alpha1.ReasonZoneLost, e.missingMessage())
		}
	}
	return not(v1alpha1.ReasonFilling, e.missingMessage())
}

// heldNoun is what the reservation holds.
func (e *entry) heldNoun() string {
	if e.valid.nodes != nil {
		return "amounts"
	}
	return "slots"
}

// usedInWords says what is used of amounts, if anything is.
func (e *entry) usedInWords() string {
	if used := &e.report.Used; !used.IsZero() {
		return " (" + placement.Words(used) + " of them used)"
	}
	return ""
}

// missingMessage says how many slots are missing, and why.
func (e *entry) missingMessage() string {
	if e.applied.nodes != nil {
		return fmt.Sprintf("%s missing on %d nodes%s: %s",
			placement.Words(&e.report.Missing), e.report.MissingOn, e.usedInWords(), e.report.Shortfalls())
	}
	line := fmt.Sprintf("%d of %d slots are missing", e.report.Missing.Pods, e.report.Desired.Pods)
	if shortfalls := e.report.Shortfalls(); shortfalls != "" {
		line += ": " + shortfalls
	}
	return line
}

// degradedCondition says whether something is missing for a reason that does not pass by itself.
func (e *entry) degradedCondition() metav1.Condition {
	degraded := func(reason, message string) metav1.Condition {
		return condition(v1alpha1.ConditionDegraded, true, reason, message)
	}
	var nodes []string
	if e.report != nil {
		for _, name := range e.report.Full {
			if !e.daemons[name] {
				nodes = append(nodes, name+e.causes[name])
			}
		}
	}
	switch r := e.report; {
	case r == nil || r.Missing.IsZero():
	case len(nodes) > 0:
		return degraded(v1alpha1.ReasonOvercommitted,
			e.heldNoun()+" have lost their room and have no other place yet: node "+joinFirst(nodes, "; node "))
	case len(r.Away) > 0:
		return degraded(v1alpha1.ReasonNodesLost,
			e.heldNoun()+" have no place because these nodes were removed or are not ready: "+joinNames(r.Away))
	case len(r.Capped) > 0:
		return degraded(v1alpha1.ReasonHeldFractionReached,
			"the scheduler's maxHeldFraction allows no more to be held in zone "+joinNames(r.Capped))
	}
	message := "all held " + e.heldNoun() + " have their room"
	return condition(v1alpha1.ConditionDegraded, false, v1alpha1.ReasonAsDesired, message)
}

// ownersDoNotFitCondition says whether some owners cannot use the slots.
func (e *entry) ownersDoNotFitCondition() metav1.Condition {
	message := "the slots are large enough for the owners that exist"
	if e.applied != nil && e.applied.nodes != nil {
		message = "owners take what they lack from the amounts"
	} else if e.applied != nil && e.report != nil {
		most := int64(0)
		for i := range e.report.Zones {
			for j := range e.report.Zones[i].Nodes {
				most = max(most, e.report.Zones[i].Nodes[j].Held.Pods)
			}
		}
		if reason, message := e.survey.misfit(e.applied, int(most)); reason != "" {
			return condition(v1alpha1.ConditionOwnersDoNotFit, true, reason, message)
		}
	}
	return condition(v1alpha1.ConditionOwnersDoNotFit, false, v1alpha1.ReasonOwnersFit, message)
}

// protectedCondition says whether the slots are kept from pods without a priority class.
func (e *entry) protectedCondition() metav1.Condition {
	if e.applied != nil && e.priority < e.defaultPriority {
		return condition(v1alpha1.ConditionProtected, false, v1alpha1.ReasonPriorityBelowDefault, fmt.Sprintf(
			"spec.priority: pods without a priority class get priority %d from PriorityClass %s and may take the room of the slots, "+
				"which have priority %d", e.defaultPriority, e.defaultClass, e.priority))
	}
	message := "slots keep out pods without a priority class"
	return condition(v1alpha1.ConditionProtected, true, v1alpha1.ReasonProtected, message)
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
