package reservecache

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// PreFilter holds the cycle back until the ledger has seen the cluster and the slots of the reservations are placed,
// compares ledger and snapshot now and then, lets reservations take what has become free, and finds out which slots the
// pod may use; a hypothetical pod leaves no trace. It rejects no pod and no node, and has Filter skipped for pods that
// no hold can touch. It fails with an error, so that the pod is retried, when the handlers have not synced in time.
func (p *ReserveCache) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	r := p.running
	r.leader.Cycle()
	if err := r.gate.wait(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	r.server.AwaitStart(ctx)
	imagined := hypothetical.Marked(state)
	// Before the view is read: what opens from here on is news to this attempt.
	if !imagined && r.waiting.AttemptBegins(pod.UID) {
		r.server.RequestPass()
	}
	// A pod-group cycle tries placements on the snapshot without changing its generations.
	if !imagined && !state.IsPodGroupSchedulingCycle() {
		now := r.clock.Now()
		r.drift.check(klog.FromContext(ctx), nodes, now)
		recent := func() ([]string, bool) { return r.recent.next(now) }
		if result := r.planner.Collect(cycleView{nodes, r.ledger, r.server, recent}); len(result.Changed) > 0 || result.More {
			r.server.RequestPass()
		}
	}
	if pod.Spec.NodeName != "" {
		return nil, fwk.NewStatus(fwk.Skip) // preemption for an in-place resize: the pod has its node, and its kubelet decides
	}
	r.view.Update()
	version := r.server.Version() // before the owner is looked up: it may be older than the owner, not newer
	requester, owner := r.requesterOf(pod)
	if requester.IgnoreHolds || r.view.Empty() && (owner == nil || requester.Use != holds.UseOnly) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	d := &cycleData{
		requester: requester, request: r.ledger.Requests(pod), reservation: owner, version: version,
		betterNode: &betterNode{state: state, nodes: nodes}, inGroup: state.IsPodGroupSchedulingCycle(),
	}
	if !imagined {
		d.refusalRecorded = &atomic.Bool{}
	}
	if owner != nil {
		d.parts, d.taken = &partsToTake{parts: map[string]ledger.Resources{}}, &atomic.Pointer[holds.Taken]{}
	}
	state.Write(stateKey, d)
	return nil, nil
}

// PreFilterExtensions returns nil: pods that come and go in what-if searches are in the NodeInfos, and nothing else is
// asked.
func (*ReserveCache) PreFilterExtensions() fwk.PreFilterExtensions { return nil }
