package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.SignPlugin = (*ZoneSpread)(nil)

// SignPod lets the framework batch the pods that the plugin does not spread (KEP-5598), as PodTopologySpread does:
// within a batch pods are placed by the scores of the first one, which are stale for all pods that count for each
// other. The scheduling queue keeps signatures until a pod changes, so pods are not signed before the policies are
// known; for policies that come later see PreScore.
func (pl *ZoneSpread) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	switch {
	case len(pod.Spec.TopologySpreadConstraints) > 0:
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with topology constraints are not signable")
	case len(pl.defaultConstraints) > 0:
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with default topology constraints are not signable")
	case !pl.shared.policies.Known():
		return nil, fwk.NewStatus(fwk.Unschedulable, "no pods are signable before zone spread policies are known")
	case pl.shared.policies.Selects(pod):
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods with zone spread policies are not signable")
	}
	return nil, nil
}
