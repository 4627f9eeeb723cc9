package reservecache

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/reservecache/serve"
)

// PreFilter brings the floor up to date with the nodes of the cycle, and finds out which slots the pod may use. It
// rejects no pod and no node, and has Filter skipped for pods that no slots can touch. It fails with an error, so that
// the pod is retried, when the handlers have not synced in time.
//
// A pod's way:
//
//	PreFilter  the first cycle waits until the ledger and the reservations are known
//	           nodes that have changed are taken in; claims that lack slots take free room, the oldest first
//	Filter     a node has to have room for the pod beside the slots that it may not use
//	Score      a pod that outranks slots prefers nodes where it needs none of them
//	Reserve    the ledger assumes the pod
//	Unreserve  the ledger forgets the pod
func (p *ReserveCache) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	r := p.running
	r.leader.Cycle()
	if err := r.gate.wait(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	r.server.AwaitStart(ctx)
	claims, imagined, inGroup := r.server.Claims(), hypothetical.Marked(state), state.IsPodGroupSchedulingCycle()
	if !imagined {
		r.refused.beginAttempt(pod.UID)
		p.updateFloor(ctx, state, claims, nodes)
	}
	if pod.Spec.NodeName != "" {
		return nil, fwk.NewStatus(fwk.Skip) // preemption for an in-place resize: the pod has its node, and its kubelet decides
	}
	if len(claims.List) == 0 {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	asked, owner, ignores := r.floorPod(claims, pod)
	if ignores {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	if !owner.NeedsSlot() && r.floor.floor.Empty() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	d := &cycleData{pod: asked, claims: claims, owner: owner, inGroup: inGroup}
	if !imagined {
		d.refused = &atomic.Bool{}
	}
	state.Write(stateKey, d)
	return nil, nil
}

// PreFilterExtensions returns nil: pods that come and go in what-if searches are in the NodeInfos, and nothing else is
// asked.
func (*ReserveCache) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// updateFloor brings the floor up to date. In the cycle of a pod group only the first member does: for the others the
// snapshot is changed under an unchanged generation. In the run of its preemption no member does.
func (p *ReserveCache) updateFloor(ctx context.Context, state fwk.CycleState, claims *serve.Claims, nodes []fwk.NodeInfo) {
	r, all := p.running, true
	if state.IsPodGroupSchedulingCycle() {
		group := upstream.GroupState(state)
		if group == nil {
			return
		}
		if _, err := group.Read(stateKey); err == nil {
			return
		}
		group.Write(stateKey, groupSeen{})
		if r.floor.copied(nodes) {
			return
		}
		all = false // a placement shows its own nodes alone
	} else {
		r.comparison.compare(klog.FromContext(ctx), nodes)
	}
	if r.floor.update(claims, nodes, all, r.clock.Now()) {
		r.server.RequestPass()
	}
}

// groupSeen notes in the state of a pod group's cycle that its first member has been through PreFilter.
type groupSeen struct{}

// Clone returns the note itself.
func (g groupSeen) Clone() fwk.StateData { return g }
