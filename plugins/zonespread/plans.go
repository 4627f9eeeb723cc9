package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/policies"
)

// Policies are the ZoneSpreadPolicies that the plugin applies.
func (pl *ZoneSpread) Policies() *policies.Policies { return pl.policies }

// Judge returns what the policies of a pod say about every zone, in a scheduling cycle of this pod or another one;
// nil when the pod has none. The caller may change the verdicts.
func (pl *ZoneSpread) Judge(ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *policies.Verdicts {
	return pl.policies.Judge(pod, policyCounter{pl: pl, ctx: ctx, cycleState: cycleState, nodes: nodes}, pl.features.comparisonOperators)
}
