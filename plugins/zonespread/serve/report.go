package serve

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
)

// Reasons of the events about a policy.
const (
	reasonZoneClosed    = "ZoneClosed"
	reasonZoneFull      = "ZoneFull"
	reasonZoneBack      = "ZoneBack"
	reasonInfeasible    = "Infeasible"
	reasonFeasible      = "Feasible"
	reasonNotAccepted   = "NotAccepted"
	reasonAcceptedAgain = "Accepted"

	eventAction = "Scheduling"
)

// policyEvent is one event about a policy.
type policyEvent struct{ kind, reason, note string }

// eventsBetween returns the events about the change from one status to the next. The status is read from the API
// server, so each change is announced once, also after a restart.
func eventsBetween(before, after *v1alpha1.ZoneSpreadPolicyStatus) []policyEvent {
	var out []policyEvent
	add := func(kind, reason, format string, args ...any) {
		out = append(out, policyEvent{kind, reason, fmt.Sprintf(format, args...)})
	}
	states := make(map[string]v1alpha1.ZoneState, len(before.Zones))
	for i := range before.Zones {
		states[before.Zones[i].Name] = before.Zones[i].State
	}
	for i := range after.Zones {
		z := &after.Zones[i]
		if z.State == states[z.Name] {
			continue
		}
		switch z.State {
		case v1alpha1.ZoneClosed:
			add(v1.EventTypeWarning, reasonZoneClosed, "zone %s is closed%s: the other zones may take its share",
				z.Name, since(z))
		case v1alpha1.ZoneFull:
			add(v1.EventTypeWarning, reasonZoneFull,
				"zone %s is full for pods of a workload%s: the other zones may take its share", z.Name, since(z))
		case v1alpha1.ZoneRecovering:
			add(v1.EventTypeNormal, reasonZoneBack, "zone %s is back and holds %d of %d pods: new pods prefer it",
				z.Name, z.Pods, z.Desired)
		case v1alpha1.ZoneAvailable:
			// A recovery was announced when it began.
			if unavailable(states[z.Name]) {
				add(v1.EventTypeNormal, reasonZoneBack, "zone %s is back and holds %d of %d pods", z.Name, z.Pods,
					z.Desired)
			}
		case v1alpha1.ZoneEmpty:
		}
	}
	for _, c := range []struct {
		condition     string
		bad, good     metav1.ConditionStatus
		begins, mends string
	}{
		{v1alpha1.ConditionInfeasible, metav1.ConditionTrue, metav1.ConditionFalse, reasonInfeasible, reasonFeasible},
		{
			v1alpha1.ConditionAccepted, metav1.ConditionFalse, metav1.ConditionTrue, reasonNotAccepted,
			reasonAcceptedAgain,
		},
	} {
		older, newer := meta.FindStatusCondition(before.Conditions,
			c.condition), meta.FindStatusCondition(after.Conditions, c.condition)
		wasBad := older != nil && older.Status == c.bad
		switch {
		case newer == nil:
		case newer.Status == c.bad && (!wasBad || older.Reason != newer.Reason):
			add(v1.EventTypeWarning, c.begins, "%s: %s", newer.Reason, newer.Message)
		case newer.Status == c.good && wasBad:
			add(v1.EventTypeNormal, c.mends, "%s", newer.Message)
		}
	}
	return out
}

// since says since when a zone has its state.
func since(z *v1alpha1.ZoneStatus) string {
	at := z.Since
	if z.State == v1alpha1.ZoneFull {
		at = nil
		for i := range z.Full {
			if since := z.Full[i].Since; at == nil || since != nil && since.Before(at) {
				at = since
			}
		}
	}
	if at == nil {
		return ""
	}
	return " since " + at.UTC().Format("15:04:05") + " UTC"
}

func unavailable(state v1alpha1.ZoneState) bool {
	return state == v1alpha1.ZoneClosed || state == v1alpha1.ZoneFull
}

// announce sends the events about a change of a policy's status.
func (s *Policies) announce(logger klog.Logger, older, newer *v1alpha1.ZoneSpreadPolicy) {
	recorder := s.handle.EventRecorder()
	if recorder == nil {
		return // no API server
	}
	regarding := &v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "ZoneSpreadPolicy",
		Namespace: older.Namespace, Name: older.Name, UID: older.UID, ResourceVersion: older.ResourceVersion,
	}
	for _, n := range eventsBetween(&older.Status, &newer.Status) {
		recorder.WithLogger(logger).Eventf(regarding, nil, n.kind, n.reason, eventAction, "%s", crd.Shortened(n.note))
	}
}
