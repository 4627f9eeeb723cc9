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
	if state.IsPodGroupSchedulingCycle() {
		return nil, 0
	}
	wait, reason, detail := false, gang.ReasonNone, ""
	id, _ := p.gangs.step(pod, func(e *gangEntry, now time.Time) {
		e.notePlaced()
		wait, reason, detail = e.gang.Permit(pod.UID, nodeName, now)
	})
	if status := p.gangs.refusal(id, reason, detail); status != nil {
		return status, 0
	}
	if wait {
		return fwk.NewStatus(fwk.Wait, "PodGroup "+id.String()+": waits for the other members"), podgroup.MaxTimeout
	}
	return nil, 0
}
