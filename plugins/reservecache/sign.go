package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/serve"
)

// signature distinguishes pods without slots, as far as slots treat them differently.
type signature struct {
	Priority     int32
	IgnoresSlots bool
}

// SignPod signs the pods that own no slot, so that the framework may batch them: what slots make of a node is the same
// for all pods of one priority. Where an owner goes depends on the slots that are left.
func (p *ReserveCache) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	claims := p.running.server.Claims()
	owner := claims.OwnerOf(pod)
	if owner != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods that own held capacity are not signable")
	}
	if len(claims.List) == 0 {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: Name, Value: signature{schedulingv1.PodPriority(pod), serve.IgnoresSlots(pod)}}}, nil
}
