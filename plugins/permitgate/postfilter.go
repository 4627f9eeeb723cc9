package permitgate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// PostFilter is called when a member fits on none of the nodes that it was tried on. If these were the proposed ones,
// it is tried on all nodes next; otherwise the gang is rolled back if the quorum cannot be reached without it.
// PostFilter keeps members from preempting while their gang lacks others too, so it must come before DefaultPreemption.
func (p *PermitGate) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	id, ok := podgroup.Of(pod)
	if !ok || pod.Spec.NodeName != "" || state.IsPodGroupSchedulingCycle() { // Kubernetes 1.36 asks in these too
		p.noteKeptOff(pod)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	a := attemptOf(state)
	if a != nil && a.refused {
		return p.nominationOf(id, pod), fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	detail, reason := p.whyNoNodeFits(a, statuses)
	hinted := a != nil && len(a.hinted) > 0
	mayPreempt, failed := false, gang.Rollback{}
	p.gangs.change(id, func(e *gangEntry, now time.Time) {
		if m := e.pods[pod.UID]; m != nil {
			e.plan.recordRefused(m)
		}
		e.plan.addCost(a, now)
		round, packed := e.gang.RoundNumber(), e.confined != domain{}
		mayPreempt = e.gang.Unschedulable(pod.UID, hinted, detail, reason, now)
		if round == 0 || e.gang.Phase() != gang.Backoff {
			return
		}
		p.gangs.restLocked(e, e.plan.cost, now)
		if !packed { // a packed gang tries its next domain first
			failed = e.gang.LastRollback()
		}
	})
	p.nominateAgain(a)
	if failed.Cause == gang.CauseUnschedulable {
		p.preempt(ctx, state, id, pod, failed)
	}
	if mayPreempt {
		p.noteKeptOff(pod)
		p.keepForReplacement(ctx, state, id, pod)
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	return p.nominationOf(id, pod), fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "PodGroup "+id.String()+": members do not preempt one by one")
}

// noteKeptOff remembers a pod that found no node because a gang keeps some, the end of which is no event for the pod.
func (p *PermitGate) noteKeptOff(pod *v1.Pod) {
	if c := p.keptOff.Load(); c != nil {
		p.gangs.keeping.noteRefused(pod, c)
	}
}

// keepForReplacement lets a running gang keep nodes whose quorum lacks only this member, which fits nowhere.
func (p *PermitGate) keepForReplacement(ctx context.Context, state fwk.CycleState, id gangID, pod *v1.Pod) {
	lacksOne := false
	p.gangs.read(id, func(e *gangEntry) { lacksOne = e.awaitsReplacement() })
	if !lacksOne {
		return
	}
	req, result := p.proposer.requestAfterFailure(ctx, state, id, pod)
	result.refusal.Cause = gang.CauseNoRoom
	p.keeper.keepForStarving(ctx, req, result, true)
}

// nominationOf returns the nomination of a member that found no node: to the node that is kept for it, or else to none,
// because its present one belongs to an earlier attempt.
func (p *PermitGate) nominationOf(id gangID, pod *v1.Pod) *fwk.PostFilterResult {
	node := ""
	p.gangs.read(id, func(e *gangEntry) { node = e.keptNode(pod.UID) })
	return &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: node}}
}

// preempt looks for victims for a gang that was rolled back because this member fits nowhere.
func (p *PermitGate) preempt(ctx context.Context, state fwk.CycleState, id gangID, pod *v1.Pod, failed gang.Rollback) {
	req, result := p.proposer.requestAfterFailure(ctx, state, id, pod)
	if result.view == nil {
		return
	}
	result.refusal = failed
	if victims, found := p.victims.find(ctx, state, req, result); found {
		p.victims.begin(ctx, id, &victims)
	}
}

// whyNoNodeFits sums up the nodes' reasons: detail has numbers and begins with the most frequent, reason has no numbers
// and so stays the same. It runs in the scheduling cycle, the only place where the snapshot may be read.
func (p *PermitGate) whyNoNodeFits(a *attempt, statuses fwk.NodeToStatusReader) (detail, reason string) {
	count := map[string]int{}
	looked := 0
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	add := func(node string) {
		looked++
		for _, reason := range statuses.Get(node).Reasons() {
			count[reason]++
		}
	}
	if a != nil && a.nodes != nil {
		for node := range a.nodes {
			add(node)
		}
	} else if nodes, err := infos.List(); err == nil {
		for _, info := range nodes {
			add(info.Node().Name)
		}
	}
	reasons := make([]string, 0, len(count))
	for reason := range count {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	const most = 5
	reasons = reasons[:min(len(reasons), most)]
	var b strings.Builder
	fmt.Fprintf(&b, "none of %d nodes fits", looked)
	for i, reason := range reasons {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%d %s", sep, count[reason], reason)
	}
	slices.Sort(reasons)
	return b.String(), "no node fits: " + strings.Join(reasons, ", ")
}
