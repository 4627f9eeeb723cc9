package permitgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// refusedKey marks the cycle state of a member that PreFilter refused: its gang has not failed by that.
const refusedKey = fwk.StateKey(Name + "/refused")

// refused is the mark.
type refused struct{}

// Clone returns the mark itself, which nobody changes.
func (r refused) Clone() fwk.StateData { return r }

// noNomination takes a member's nomination back, which the framework otherwise keeps: the node that an
// earlier attempt had for the member is not meant for it any more.
var noNomination = &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}}

// PreFilter sends a member to its planned node. The first member of a gang that comes here makes the plan, for
// all; without one the gang is rolled back. PreFilter refuses a member whose gang has been rolled back, or
// has lost its PodGroup or its quorum, since the member entered the active queue. In the cycle of any pod starving gangs take what has become
// free.
func (p *PermitGate) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.shared.probing {
		return nil, fwk.NewStatus(fwk.Skip) // where a member may go is what is being tried
	}
	if !state.IsPodGroupSchedulingCycle() {
		p.collectAhead(ctx, state, pod, nodes)
	}
	key, ok := gangOf(pod)
	if !ok || pod.Spec.NodeName != "" || state.IsPodGroupSchedulingCycle() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	a := p.shared.ask(key, func(g *gang.Gang, now time.Time) (gang.Reason, string) {
		return g.Enter(pod.UID, now)
	})
	if status := refusal(key, a); status != nil {
		state.Write(refusedKey, refused{})
		return nil, status
	}
	node, status := p.place(ctx, state, key, pod, nodes)
	switch {
	case status != nil:
		state.Write(refusedKey, refused{})
		return nil, status
	case node == "":
		return nil, fwk.NewStatus(fwk.Skip)
	}
	state.Write(pinKey, &pin{node})
	return &fwk.PreFilterResult{NodeNames: sets.New(node)}, nil
}

// PreFilterExtensions returns nil: other pods on a node change nothing here.
func (*PermitGate) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// PostFilter hears that a member fits on no node. When the quorum cannot be reached without it, the
// gang is rolled back. It keeps members from preempting while their gang lacks others too; for that it
// must come before DefaultPreemption.
func (p *PermitGate) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	key, ok := gangOf(pod)
	if !ok || pod.Spec.NodeName != "" || state.IsPodGroupSchedulingCycle() {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	if _, err := state.Read(refusedKey); !errors.Is(err, fwk.ErrNotFound) {
		return noNomination, fwk.NewStatus(fwk.UnschedulableAndUnresolvable)
	}
	if pinned := pinOf(state); pinned != nil {
		p.refusedPin(ctx, state, key, pod, pinned.node, statuses.Get(pinned.node))
		return noNomination, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "PodGroup "+key.String()+": no member preempts for itself")
	}
	detail := p.whyNoNodeFits(statuses)
	mayPreempt := false
	p.shared.change(key, func(e *entry, now time.Time) {
		mayPreempt = e.gang.Unschedulable(pod.UID, detail, now)
		p.shared.checkNominationLocked(e, pod.UID)
	})
	if mayPreempt {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	return noNomination, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "PodGroup "+key.String()+": no member preempts for itself")
}

// whyNoNodeFits sums up the nodes' reasons, the most frequent first. It runs in the scheduling cycle,
// the only place where the snapshot may be read.
func (p *PermitGate) whyNoNodeFits(statuses fwk.NodeToStatusReader) string {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return "no node fits"
	}
	count := map[string]int{}
	for _, node := range nodes {
		for _, reason := range statuses.Get(node.Node().Name).Reasons() {
			count[reason]++
		}
	}
	reasons := make([]string, 0, len(count))
	for reason := range count {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		if count[a] != count[b] {
			return count[b] - count[a]
		}
		return strings.Compare(a, b)
	})
	const most = 5
	var b strings.Builder
	fmt.Fprintf(&b, "none of %d nodes fits", len(nodes))
	for i, reason := range reasons[:min(len(reasons), most)] {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%d %s", sep, count[reason], reason)
	}
	return b.String()
}
