package zonespread

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.PodGroupPostFilterPlugin = (*ZoneSpread)(nil)

// PodGroupPostFilter has nothing to do: what refused the members of a group is noted elsewhere, see noteGroupCycle. A
// plugin with PostFilter that lacks it is an error in the log of kube-scheduler from 1.38 on.
func (*ZoneSpread) PodGroupPostFilter(
	context.Context, fwk.PodGroupCycleState, fwk.PodGroupInfo, fwk.PodGroupSchedulingFunc,
) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
