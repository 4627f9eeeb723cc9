package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// Reserve records where a member goes, so that its booking is free for others of its gang.
func (p *PermitGate) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	key, ok := podgroup.Of(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return nil
	}
	if a := attemptOf(state); a != nil && len(a.hinted) > 0 {
		hintedMembers.WithLabelValues("placed").Inc()
	}
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	p.gangs.look(key, func(e *entry, _ time.Time) {
		e.books.reserved(pod.UID, nodeName)
		if e.unconfined() {
			e.confine(infos, nodeName)
		}
	})
	return nil
}

// Unreserve is called when a pod has lost its node: a member was sent back from Permit, refused by another
// plugin, or could not be bound. In a pod-group cycle it only ends a rehearsal.
func (p *PermitGate) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) {
	if state.IsPodGroupSchedulingCycle() {
		return
	}
	p.victims.preemptor.Gone(pod.UID) // a victim that had not been bound
	key, ok := podgroup.Of(pod)
	if ok {
		p.gangs.change(key, func(e *entry, now time.Time) {
			e.gang.Unreserved(pod.UID, now)
			if m := e.pods[pod.UID]; m != nil && e.gang.KeepsNode(pod.UID) {
				// The framework clears the nomination later, when it handles the failure.
				e.books.book(pod.UID, booking{pod: m.pod, amounts: m.amounts, node: nodeName, kind: bookedForBind, fresh: now.Add(freshInterval)})
			}
		})
	}
	if p.gangs.short.Load() > 0 {
		p.shared.wakes.hear(event{node: nodeName, gone: pod.UID, by: key})
	}
}
