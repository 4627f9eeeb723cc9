package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// Reserve records where a member goes, so that others of its gang are tried elsewhere.
func (p *PermitGate) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	id, ok := podgroup.Of(pod)
	if !ok || state.IsPodGroupSchedulingCycle() || hypothetical.Marked(state) {
		return nil
	}
	a := attemptOf(state)
	p.nominateAgain(a)
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	p.gangs.update(id, func(e *gangEntry, now time.Time) {
		if m := e.pods[pod.UID]; m != nil {
			e.plan.recordPlaced(m, nodeName)
		}
		e.plan.addCost(a, now)
		if e.needsDomain() {
			e.chooseDomain(infos, nodeName)
		}
	})
	return nil
}

// Unreserve is called when a pod has lost its node: a member was sent back from Permit, refused by another
// plugin, or could not be bound. In a pod-group cycle, and in a search for victims, it only ends a rehearsal.
func (p *PermitGate) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if state.IsPodGroupSchedulingCycle() || hypothetical.Marked(state) {
		return
	}
	p.victims.preemptor.Gone(pod.UID) // a victim that had not been bound
	comesBack := false
	p.gangs.step(pod, func(e *gangEntry, now time.Time) {
		e.notePlaced()
		e.gang.Unreserved(pod.UID, now)
		comesBack = e.pods[pod.UID] != nil
	})
	if !comesBack { // see freedRoom
		p.gangs.freed.note()
	}
}
