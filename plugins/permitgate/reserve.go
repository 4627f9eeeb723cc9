package permitgate

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// Reserve records where a member goes, so that its booking is free for others of its gang. It fails with an error, so that
// the pod is retried, if the pod would take the room of a member that has just lost its node.
func (p *PermitGate) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	key, ok := podgroup.Of(pod)
	if state.IsPodGroupSchedulingCycle() {
		return nil
	}
	if err := p.leavesRoom(pod, key, nodeName); err != nil {
		return fwk.AsStatus(fmt.Errorf("node %q: %w", nodeName, err))
	}
	if !ok {
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

// leavesRoom returns an error if a pod takes room that is kept for a member that has just lost its node: its bind has failed, or
// its gang was rolled back. Until the framework has put such a member back into its queue, it does not know what the member
// takes, and a nomination keeps nothing for it.
func (p *PermitGate) leavesRoom(pod *v1.Pod, key types.NamespacedName, nodeName string) error {
	if p.gangs.bookings.fresh.Load() == 0 {
		return nil
	}
	coming := p.gangs.comingBack(key, corev1.PodPriority(pod), nodeName)
	if len(coming) == 0 {
		return nil
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fmt.Errorf("it is not in the snapshot: %w", err)
	}
	own := proposal.Requests(pod)
	names := make([]v1.ResourceName, len(own))
	for i := range own {
		names[i] = own[i].Name
	}
	free, wanted := make([]int64, len(names)), make([]int64, len(names))
	v := &view{nodes: []fwk.NodeInfo{info}, filters: p.proposer.filters, promised: map[string][]promise{nodeName: coming}}
	v.Free(0, names, free)
	v.Kept(0, pod, names, wanted)
	proposal.Add(wanted, names, own)
	for i, name := range names {
		if wanted[i] > free[i] {
			return fmt.Errorf("its %s is kept for a member of a gang that has just lost its node", name)
		}
	}
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
			// The framework clears the nomination later, when it handles the failure.
			e.books.forgotten(pod.UID, now.Add(freshInterval))
			if m := e.pods[pod.UID]; m != nil && e.gang.KeepsNode(pod.UID) {
				e.books.book(pod.UID, booking{pod: m.pod, amounts: m.amounts, node: nodeName, kind: bookedForBind, fresh: now.Add(freshInterval)})
			}
		})
	}
	if p.gangs.waitingCount.Load() > 0 {
		p.shared.wakes.noteFreed(event{node: nodeName, gone: pod.UID, by: key})
	}
}
