package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// signature distinguishes pods without slots, as far as holds treat them differently.
type signature struct {
	Priority     int32
	IgnoresHolds bool
}

// SignPod signs the pods that own no slot, so that the framework may batch them: what holds make of a node is the same
// for all pods of one priority. Where an owner goes depends on the slots that are left.
func (p *ReserveCache) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	requester, owner := p.running.requesterOf(pod)
	if owner != nil {
		return nil, fwk.NewStatus(fwk.Unschedulable, "pods that own held capacity are not signable")
	}
	if !p.running.server.Any() {
		return nil, nil
	}
	return []fwk.SignFragment{{Key: Name, Value: signature{requester.Priority, requester.IgnoreHolds}}}, nil
}
