package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/barrier"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// step runs f on the gang of a member that takes a step of its way. placed says that it has been given a node. It
// reports false, and runs nothing, for a pod that is in no gang.
func (p *PermitGate) step(pod *v1.Pod, placed bool, f func(g *gang.Gang, b *barrier.Barrier, now time.Time)) (id gangID, ok bool) {
	return p.gangs.step(pod, func(e *gangEntry, now time.Time) {
		if placed {
			e.notePlaced()
		}
		f(e.gang, &e.barrier, now)
	})
}

// Permit makes a member wait for the quorum. The member that completes it waits like the others: the
// worker releases all together, once it has seen that no other plugin keeps any of them. The gang has its own
// deadline, so the framework's timeout is the longest possible.
func (p *PermitGate) Permit(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	if state.IsPodGroupSchedulingCycle() {
		return nil, 0
	}
	wait, reason, detail := false, gang.ReasonNone, ""
	id, _ := p.step(pod, true, func(g *gang.Gang, _ *barrier.Barrier, now time.Time) {
		wait, reason, detail = g.Permit(pod.UID, nodeName, now)
	})
	if status := p.gangs.refusal(id, reason, detail); status != nil {
		return status, 0
	}
	if wait {
		return fwk.NewStatus(fwk.Wait, "PodGroup "+id.String()+": waits for the other members"), podgroup.MaxTimeout
	}
	return nil, 0
}
