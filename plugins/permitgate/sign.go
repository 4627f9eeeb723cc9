package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// SignPod refuses to sign members, which depend on other pods. It adds nothing to the signature of other pods.
func (*PermitGate) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if _, ok := podgroup.Of(pod); ok {
		return nil, fwk.NewStatus(fwk.Unschedulable, "members of a gang are not batched")
	}
	return nil, nil
}
