package policies

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/metrics"
)

const subsystem = "zonespread"

var evaluationDuration = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
	Namespace: metrics.Namespace, Subsystem: subsystem, Name: "policy_evaluation_duration_seconds",
	Help:           "Time to judge all zones by all ZoneSpreadPolicies of one pod.",
	Buckets:        compbasemetrics.ExponentialBuckets(10e-6, 2, 14), // to 82 ms
	StabilityLevel: compbasemetrics.ALPHA,
})

// Gauges are read from the policies when the metrics are gathered, so that there is nothing to be forgotten when a policy
// goes. They show what the status shows; only the leader has them, so that sums over replicas are right.
var (
	replicasDesc    = policyGauge("policy_replicas", "Desired replicas of the pods that a ZoneSpreadPolicy selects.")
	podsDesc        = policyGauge("policy_placed_pods", "Placed pods that a ZoneSpreadPolicy selects.")
	waitingDesc     = policyGauge("policy_waiting_pods", "Pods that wait and that a ZoneSpreadPolicy refused somewhere when they were last tried.")
	skewDesc        = policyGauge("policy_skew_pods", "By how many pods the fullest zone is ahead of its share; more than maxSkew breaks the policy.")
	unavailableDesc = policyGauge("policy_zone_unavailable", "1 for a zone that does not count for the policy now, by state: Down, Full.", "zone", "state")
	conditionDesc   = policyGauge("policy_condition", "Conditions of a ZoneSpreadPolicy, by type: 1 when True, 0 when False; absent when Unknown.", "condition")
)

func policyGauge(name, help string, labels ...string) *compbasemetrics.Desc {
	return metrics.NewGaugeDesc(subsystem, name, help, append([]string{"namespace", "policy"}, labels...), compbasemetrics.ALPHA)
}

var collected = metrics.NewCollector((*Policies).collect,
	replicasDesc, podsDesc, waitingDesc, skewDesc, unavailableDesc, conditionDesc)

// exportMetrics exports the metrics of s until ctx ends.
func exportMetrics(ctx context.Context, s *Policies) {
	metrics.MustRegister(evaluationDuration)
	collected.Export(ctx, s)
}

func (s *Policies) collect(sendTo metrics.Send) {
	if !s.leading.Load() {
		return
	}
	s.mu.Lock()
	uids := make([]types.UID, 0, len(s.entries))
	for uid := range s.entries {
		uids = append(uids, uid)
	}
	s.mu.Unlock()
	for _, uid := range uids {
		obj, status := s.desiredStatus(uid) // the lock is free in between, for scheduling cycles
		if obj == nil {
			continue
		}
		send := func(d *compbasemetrics.Desc, value float64, labels ...string) {
			sendTo(d, value, append([]string{obj.Namespace, obj.Name}, labels...)...)
		}
		for i := range status.Conditions {
			switch c := &status.Conditions[i]; c.Status {
			case metav1.ConditionTrue:
				send(conditionDesc, 1, c.Type)
			case metav1.ConditionFalse:
				send(conditionDesc, 0, c.Type)
			case metav1.ConditionUnknown:
			}
		}
		if rejected(&status) {
			continue // its figures are of a former spec
		}
		send(replicasDesc, float64(status.Replicas))
		send(podsDesc, float64(status.Pods))
		send(skewDesc, float64(status.Skew))
		send(waitingDesc, float64(s.waiting(uid)))
		for i := range status.Zones {
			if z := &status.Zones[i]; unavailable(z.State) {
				send(unavailableDesc, 1, z.Name, string(z.State))
			}
		}
	}
}

func (s *Policies) waiting(uid types.UID) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[uid]; ok {
		return len(e.refused)
	}
	return 0
}

func rejected(status *v1alpha1.ZoneSpreadPolicyStatus) bool {
	return meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionAccepted)
}

func unavailable(state v1alpha1.ZoneState) bool {
	return state == v1alpha1.ZoneDown || state == v1alpha1.ZoneFull
}
