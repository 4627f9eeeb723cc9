package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// Permit makes a member wait for the quorum. The member that completes it waits like the others: the
// worker releases all together, once it has seen that no other plugin keeps any of them. The gang has its own
// deadline, so the framework's timeout is the longest possible.
func (p *PermitGate) Permit(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	if p.native.Has(pod) && !state.IsPodGroupSchedulingCycle() {
		return p.native.Permit(pod, nodeName)
	}
	key, ok := podgroup.Of(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return nil, 0
	}
	wait, reason, detail := false, gang.ReasonNotFound, ""
	p.gangs.change(key, func(e *gangEntry, now time.Time) {
		if m := e.pods[pod.UID]; m != nil {
			m.node = nodeName
		}
		wait, reason, detail = e.gang.Permit(pod.UID, now)
	})
	if status := p.refusal(key, reason, detail); status != nil {
		return status, 0
	}
	if wait {
		return fwk.NewStatus(fwk.Wait, "PodGroup "+key.String()+": waits for the other members"), podgroup.MaxTimeout
	}
	return nil, 0
}
