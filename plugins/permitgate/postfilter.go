package permitgate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// noNomination takes a member's nomination back, which the framework otherwise keeps: the node that an
// earlier attempt had for the member is not meant for it any more.
var noNomination = &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}}

// PostFilter hears that a member fits on none of the nodes that it was tried on. After the proposed nodes it is tried on all; when
// the quorum cannot be reached without it, the gang is rolled back. It keeps members from preempting while their gang lacks
// others too; for that it must come before DefaultPreemption.
func (p *PermitGate) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	key, ok := podgroup.Of(pod)
	if !ok || pod.Spec.NodeName != "" || state.IsPodGroupSchedulingCycle() {
		if p.gangs.placed.Load() > 0 || p.proposer.nominated.members.Load() > 0 {
			p.beside.refused(pod)
		}
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	a := attemptOf(state)
	if a != nil && a.refused {
		return noNomination, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	detail, reason := p.whyNoNodeFits(a, statuses)
	outcome, failed := gang.OutcomeWait, gang.Rollback{}
	p.gangs.change(key, func(e *entry, now time.Time) {
		p.gangs.endedLocked(e, pod.UID, false)
		round := e.gang.Round()
		outcome = e.gang.Unschedulable(pod.UID, detail, reason, now)
		if round != 0 && e.gang.Phase() == gang.Backoff {
			failed = e.gang.Last()
		}
	})
	if failed.Cause == gang.CauseUnschedulable {
		p.preempt(ctx, state, key, pod, failed)
	}
	switch outcome {
	case gang.OutcomePreempt:
		return nil, fwk.NewStatus(fwk.Unschedulable)
	case gang.OutcomeRetry:
		hintedMembers.WithLabelValues("refused").Inc()
	case gang.OutcomeWait:
	}
	return noNomination, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "PodGroup "+key.String()+": no member preempts for itself")
}

// preempt looks whether other pods close the nodes to a gang that a member has just failed.
func (p *PermitGate) preempt(ctx context.Context, state fwk.CycleState, key types.NamespacedName, pod *v1.Pod, failed gang.Rollback) {
	pl, o := p.proposer.again(ctx, state, key, pod)
	if o.view == nil {
		return
	}
	o.refusal = failed
	victims, found := p.victims.search(ctx, state, pl, &o)
	if !found {
		return
	}
	p.gangs.change(key, func(e *entry, _ time.Time) { p.gangs.preemptLocked(e, &victims) })
	p.victims.begin(ctx, key, &victims)
}

// whyNoNodeFits sums up the nodes' reasons, the most frequent first, and once more in words that stay the same. It runs in
// the scheduling cycle, the only place where the snapshot may be read.
func (p *PermitGate) whyNoNodeFits(a *attempt, statuses fwk.NodeToStatusReader) (detail, reason string) {
	count := map[string]int{}
	looked := 0
	infos := p.handle.SnapshotSharedLister().NodeInfos()
	add := func(node string) {
		looked++
		for _, why := range statuses.Get(node).Reasons() {
			count[why]++
		}
	}
	if a != nil && len(a.hinted) > 0 {
		for _, node := range a.hinted {
			add(node)
		}
	} else if nodes, err := infos.List(); err == nil {
		for _, info := range nodes {
			add(info.Node().Name)
		}
	}
	reasons := make([]string, 0, len(count))
	for why := range count {
		reasons = append(reasons, why)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	})
	const most = 5
	reasons = reasons[:min(len(reasons), most)]
	var b strings.Builder
	fmt.Fprintf(&b, "none of %d nodes fits", looked)
	for i, why := range reasons {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%d %s", sep, count[why], why)
	}
	slices.Sort(reasons)
	return b.String(), "no node fits: " + strings.Join(reasons, ", ")
}
