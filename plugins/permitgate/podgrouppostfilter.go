package permitgate

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"
)

var _ fwk.PodGroupPostFilterPlugin = &PermitGate{}

// PodGroupPostFilter leaves preemption for a group to DefaultPreemption. A plugin with PostFilter that lacks it is an
// error in the log of kube-scheduler from 1.38 on.
func (*PermitGate) PodGroupPostFilter(
	context.Context, fwk.PodGroupCycleState, fwk.PodGroupInfo, fwk.PodGroupSchedulingFunc,
) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
