package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

var _ fwk.PlacementFeasiblePlugin = &PermitGate{}

// enqueueNative is PreEnqueue for a member of a native gang. kube-scheduler stops at the first of a group that is
// refused, so who is back shows in the group's cycle alone: see PlacementFeasible.
func (p *PermitGate) enqueueNative(id gangID, pod *v1.Pod) *fwk.Status {
	reason, detail := gang.ReasonNone, ""
	p.gangs.step(pod, func(e *gangEntry, now time.Time) {
		p.gangs.endCycleLocked(e, now)
		reason, detail, _ = e.gang.Enqueue(pod.UID, now)
	})
	return p.gangs.refusal(id, reason, detail)
}

// PlacementFeasible ends the cycle of a native gang in which members are missing that have lost their nodes and are not
// back in the queue: for kube-scheduler these still count as placed. It is asked before the first member is tried.
func (p *PermitGate) PlacementFeasible(_ context.Context, _ fwk.PlacementCycleState, group fwk.PodGroupInfo, _ fwk.PlacementProgress) *fwk.Status {
	pods := group.GetAllUnscheduledPods()
	if group.GetPodGroup() == nil || len(pods) == 0 || p.gangs.allBack(pods[0], len(pods)) {
		return nil
	}
	id, _ := podgroup.IDOf(pods[0])
	return fwk.NewStatus(fwk.Unschedulable, "PodGroup "+id.String()+": members that have lost their nodes are not back in the queue")
}

// allBack reports whether the cycle of a native gang has all members that have lost their nodes. If not, the gang is
// looked at again.
func (g *gangs) allBack(pod *v1.Pod, inCycle int) bool {
	id, member := g.memberOf(pod)
	if !member {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.byID[id]
	if e == nil || !e.guarded() || e.gang.AllBack(inCycle) {
		return true
	}
	g.agenda.Add(id)
	return false
}
