package serve

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/metrics"
)

const subsystem = "zonespread"

// Gauges are read from the policies when metrics are gathered, so no series must be deleted with a policy. They show
// what the status shows. Only the leader has them, so that sums over replicas are right.
var (
	replicasDesc = policyGauge("policy_replicas", "Desired replicas of the pods that a ZoneSpreadPolicy selects.")
	podsDesc     = policyGauge("policy_placed_pods", "Placed pods that a ZoneSpreadPolicy selects.")
	waitingDesc  = policyGauge("policy_waiting_pods",
		"Waiting pods to which a ZoneSpreadPolicy refused a node when they were last tried.")
	skewDesc = policyGauge("policy_skew_pods",
		"By how many pods the fullest zone is ahead of its share; more than maxSkew breaks the policy.")
	unavailableDesc = policyGauge("policy_zone_unavailable",
		"1 for a zone that does not count for the policy now, by state: Closed, Full.", "zone", "state")
	conditionDesc = policyGauge("policy_condition",
		"Conditions of a ZoneSpreadPolicy, by type: 1 when True, 0 when False; absent when Unknown.", "condition")
)

func policyGauge(name, help string, labels ...string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc(subsystem, name, help, append([]string{"namespace", "policy"}, labels...),
		compbasemetrics.ALPHA)
}

var collected = metrics.NewCollector((*Policies).collect,
	replicasDesc, podsDesc, waitingDesc, skewDesc, unavailableDesc, conditionDesc)

// exportMetrics exports the metrics of s until ctx ends.
func exportMetrics(ctx context.Context, s *Policies) {
	collected.Export(ctx, s)
}

func (s *Policies) collect(sendTo metrics.Send) {
	type figures struct {
		obj     *v1alpha1.ZoneSpreadPolicy
		valid   bool
		waiting int
	}
	s.mu.Lock() // not while the figures are sent: scheduling cycles need it
	if !s.leading || !s.served {
		s.mu.Unlock()
		return
	}
	all := make([]figures, 0, len(s.entries))
	for _, e := range s.entries {
		all = append(all, figures{e.object.Latest, e.object.Valid(), len(e.refused)})
	}
	s.mu.Unlock()

	for _, f := range all {
		send := func(d *compbasemetrics.Desc, value float64, labels ...string) {
			sendTo(d, value, append([]string{f.obj.Namespace, f.obj.Name}, labels...)...)
		}
		for i := range f.obj.Status.Conditions {
			switch c := &f.obj.Status.Conditions[i]; c.Status {
			case metav1.ConditionTrue:
				send(conditionDesc, 1, c.Type)
			case metav1.ConditionFalse:
				send(conditionDesc, 0, c.Type)
			case metav1.ConditionUnknown:
			}
		}
		if !f.valid {
			continue // its figures are of an older spec
		}
		send(replicasDesc, float64(f.obj.Status.Replicas))
		send(podsDesc, float64(f.obj.Status.Pods))
		send(skewDesc, float64(f.obj.Status.Skew))
		send(waitingDesc, float64(f.waiting))
		for i := range f.obj.Status.Zones {
			if z := &f.obj.Status.Zones[i]; unavailable(z.State) {
				send(unavailableDesc, 1, z.Name, string(z.State))
			}
		}
	}
}
