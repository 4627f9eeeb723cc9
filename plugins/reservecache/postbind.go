package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PostBind records that the API server has accepted the binding. The informer may have shown it already.
func (p *ReserveCache) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, nodeName string) {
	p.running.ledger.FinishBinding(pod.UID, nodeName, p.running.clock.Now())
}
