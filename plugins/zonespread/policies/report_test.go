package policies

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

func TestNewsBetween(t *testing.T) {
	at := metav1.NewTime(start)
	zone := func(state v1alpha1.ZoneState) v1alpha1.ZoneSpreadPolicyStatus {
		return v1alpha1.ZoneSpreadPolicyStatus{Zones: []v1alpha1.ZoneStatus{{Name: "a", State: state, Pods: 2, Desired: 3, Since: &at}}}
	}
	condition := func(kind string, status metav1.ConditionStatus, reason string) v1alpha1.ZoneSpreadPolicyStatus {
		return v1alpha1.ZoneSpreadPolicyStatus{Conditions: []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: "because " + reason}}}
	}
	const accepted, infeasible = v1alpha1.ConditionAccepted, v1alpha1.ConditionInfeasible
	for name, c := range map[string]struct {
		before, after v1alpha1.ZoneSpreadPolicyStatus
		want          []news
	}{
		"a new zone":               {v1alpha1.ZoneSpreadPolicyStatus{}, zone(v1alpha1.ZoneAvailable), nil},
		"a zone without nodes":     {v1alpha1.ZoneSpreadPolicyStatus{}, zone(v1alpha1.ZoneEmpty), nil},
		"nothing new":              {zone(v1alpha1.ZoneDown), zone(v1alpha1.ZoneDown), nil},
		"down":                     {zone(v1alpha1.ZoneAvailable), zone(v1alpha1.ZoneDown), []news{{v1.EventTypeWarning, "ZoneDown", "zone a is down since 12:00:00 UTC: the other zones may take its share"}}},
		"full":                     {zone(v1alpha1.ZoneRecovering), zone(v1alpha1.ZoneFull), []news{{v1.EventTypeWarning, "ZoneFull", "zone a is full since 12:00:00 UTC: the other zones may take its share"}}},
		"back, gradually":          {zone(v1alpha1.ZoneDown), zone(v1alpha1.ZoneRecovering), []news{{v1.EventTypeNormal, "ZoneBack", "zone a is back and holds 2 of 3 pods: new pods prefer it"}}},
		"back at once":             {zone(v1alpha1.ZoneFull), zone(v1alpha1.ZoneAvailable), []news{{v1.EventTypeNormal, "ZoneBack", "zone a is back and holds 2 of 3 pods"}}},
		"recovered":                {zone(v1alpha1.ZoneRecovering), zone(v1alpha1.ZoneAvailable), nil},
		"feasible from the start":  {v1alpha1.ZoneSpreadPolicyStatus{}, condition(infeasible, metav1.ConditionFalse, "Feasible"), nil},
		"infeasible":               {condition(infeasible, metav1.ConditionFalse, "Feasible"), condition(infeasible, metav1.ConditionTrue, "CapsBelowReplicas"), []news{{v1.EventTypeWarning, "Infeasible", "CapsBelowReplicas: because CapsBelowReplicas"}}},
		"infeasible otherwise":     {condition(infeasible, metav1.ConditionTrue, "NoZones"), condition(infeasible, metav1.ConditionTrue, "CapsBelowReplicas"), []news{{v1.EventTypeWarning, "Infeasible", "CapsBelowReplicas: because CapsBelowReplicas"}}},
		"infeasible still":         {condition(infeasible, metav1.ConditionTrue, "NoZones"), condition(infeasible, metav1.ConditionTrue, "NoZones"), nil},
		"feasible again":           {condition(infeasible, metav1.ConditionTrue, "NoZones"), condition(infeasible, metav1.ConditionFalse, "Feasible"), []news{{v1.EventTypeNormal, "Feasible", "because Feasible"}}},
		"accepted from the start":  {v1alpha1.ZoneSpreadPolicyStatus{}, condition(accepted, metav1.ConditionTrue, "Accepted"), nil},
		"rejected":                 {condition(accepted, metav1.ConditionTrue, "Accepted"), condition(accepted, metav1.ConditionFalse, "Invalid"), []news{{v1.EventTypeWarning, "NotAccepted", "because Invalid"}}},
		"accepted after a mistake": {condition(accepted, metav1.ConditionFalse, "Invalid"), condition(accepted, metav1.ConditionTrue, "Accepted"), []news{{v1.EventTypeNormal, "Accepted", "because Accepted"}}},
	} {
		require.Equal(t, c.want, newsBetween(&c.before, &c.after), name)
	}
}

// TestEventsAndMetricsOfAnOutage: a zone goes down and comes back. The leader tells each change once, a long note is cut, and
// the metrics say what the status says.
func TestEventsAndMetricsOfAnOutage(t *testing.T) {
	nodes := newNodes("a1", "b1")
	w := newWorld(t, asObjects(nodes)...)
	w.eventually("the policies of earlier tests are not exported any more", func() bool { return collected.Live() == 1 })
	obj := newPolicy("web", func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones = []v1alpha1.ZoneSpreadZone{{Name: "a"}, {Name: "b", MaxPods: ptr.To[int32](1)}}
	})
	w.add(obj)
	w.createPod(newPod("1", "b1"))
	gather := func() error {
		return testutil.GatherAndCompare(legacyregistry.DefaultGatherer, strings.NewReader(`
# HELP zonewise_zonespread_policy_condition [ALPHA] Conditions of a ZoneSpreadPolicy, by type: 1 when True, 0 when False; absent when Unknown.
# TYPE zonewise_zonespread_policy_condition gauge
zonewise_zonespread_policy_condition{condition="Accepted",namespace="shop",policy="web"} 1
zonewise_zonespread_policy_condition{condition="Infeasible",namespace="shop",policy="web"} 0
zonewise_zonespread_policy_condition{condition="Satisfied",namespace="shop",policy="web"} 1
# HELP zonewise_zonespread_policy_placed_pods [ALPHA] Placed pods that a ZoneSpreadPolicy selects.
# TYPE zonewise_zonespread_policy_placed_pods gauge
zonewise_zonespread_policy_placed_pods{namespace="shop",policy="web"} 1
# HELP zonewise_zonespread_policy_replicas [ALPHA] Desired replicas of the pods that a ZoneSpreadPolicy selects.
# TYPE zonewise_zonespread_policy_replicas gauge
zonewise_zonespread_policy_replicas{namespace="shop",policy="web"} 1
# HELP zonewise_zonespread_policy_zone_unavailable [ALPHA] 1 for a zone that does not count for the policy now, by state: Down, Full.
# TYPE zonewise_zonespread_policy_zone_unavailable gauge
zonewise_zonespread_policy_zone_unavailable{namespace="shop",policy="web",state="Down",zone="a"} 1
`), "zonewise_zonespread_policy_condition", "zonewise_zonespread_policy_placed_pods", "zonewise_zonespread_policy_replicas", "zonewise_zonespread_policy_zone_unavailable")
	}
	require.Error(t, gather(), "a standby exports nothing")
	close(w.leads)
	stateOf := func(zone string) v1alpha1.ZoneState {
		for _, z := range w.api.stored(obj.UID).Status.Zones {
			if z.Name == zone {
				return z.State
			}
		}
		return ""
	}
	w.eventually("all is well", func() bool { return stateOf("a") == v1alpha1.ZoneAvailable })

	gone := nodes[0].DeepCopy()
	gone.Status.Conditions[0].Status = v1.ConditionUnknown
	gone.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.clock.Now())
	_, err := w.client.CoreV1().Nodes().UpdateStatus(t.Context(), gone, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a is known to be unready", func() bool {
		w.Policies.mu.Lock()
		defer w.Policies.mu.Unlock()
		return !w.entries[obj.UID].next.At.IsZero()
	})
	w.clock.Step(3 * time.Minute)
	w.eventually("a is down", func() bool { return stateOf("a") == v1alpha1.ZoneDown })
	w.waitSeen(obj)
	require.NoError(t, gather())
	_, err = w.client.CoreV1().Nodes().UpdateStatus(t.Context(), nodes[0], metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("a recovers", func() bool { return stateOf("a") == v1alpha1.ZoneRecovering })
	w.waitSeen(obj)

	// Three replicas want more than one of b.
	for i := range 3 {
		w.createPod(newPod(fmt.Sprint("more", i), ""))
	}
	w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.Zones[0].MaxPods = ptr.To[int32](1)
		s.PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Unlike", Values: []string{strings.Repeat("web-", 400)}}}}
	})
	w.eventually("the mistake is noticed", func() bool {
		return conditionOf(w.api.stored(obj.UID), v1alpha1.ConditionAccepted).Status == metav1.ConditionFalse
	})
	w.waitSeen(obj)
	w.change(obj, func(s *v1alpha1.ZoneSpreadPolicySpec) {
		s.PodSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	})
	w.eventually("it can not be done", func() bool {
		return conditionOf(w.api.stored(obj.UID), v1alpha1.ConditionInfeasible).Status == metav1.ConditionTrue
	})
	w.waitSeen(obj)

	var told []string
	for len(w.recorder.Events) > 0 {
		event := <-w.recorder.Events
		require.LessOrEqual(t, len(event), maxNote+len("Warning NotAccepted "))
		told = append(told, strings.Join(strings.Fields(event)[:2], " "))
	}
	require.Equal(t, []string{"Warning ZoneDown", "Normal ZoneBack", "Warning NotAccepted", "Warning Infeasible", "Normal Accepted"}, told)
}
