package reservecache

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/hypothetical"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// PreFilter holds the cycle back until the ledger has seen the cluster and the slots of the reservations are placed,
// compares ledger and snapshot now and then, lets reservations take what has become free, and finds out which slots the pod
// may use; a hypothetical pod leaves no trace. It rejects no pod and no node, and has Filter skipped for pods that no hold can touch. It fails with an error, so
// that the pod is retried, when the handlers have not synced in time.
func (p *ReserveCache) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	r := p.running
	r.leader.Cycle()
	if err := r.gate.wait(ctx); err != nil {
		return nil, fwk.AsStatus(err)
	}
	r.server.AwaitStart(ctx)
	imagined := hypothetical.Marked(state)
	if !imagined && r.waiting.AttemptBegins(pod.UID) { // before the view is read: what opens from here on is news to this attempt
		r.server.Kick()
	}
	// A pod-group cycle tries placements on the snapshot without changing its generations.
	if !imagined && !state.IsPodGroupSchedulingCycle() {
		r.drift.check(klog.FromContext(ctx), nodes, r.clock.Now())
		if result := r.planner.Collect(cycleView(nodes)); len(result.Changed) > 0 || result.More {
			r.server.Kick()
		}
	}
	if pod.Spec.NodeName != "" {
		return nil, fwk.NewStatus(fwk.Skip) // preemption for an in-place resize: the pod has its node, and its kubelet decides
	}
	r.view.Update()
	version := r.server.Version() // before the owner is looked up: it may be older than the owner, not newer
	asker, owner := r.askerFor(pod)
	if asker.IgnoreHolds || r.view.Empty() && (owner == nil || asker.Use != holds.UseOnly) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	d := &cycleData{
		asker: asker, request: r.ledger.Requests(pod), owner: owner, version: version,
		betterNode: &betterNode{state: state, nodes: nodes}, rehearsed: rehearsalOf(state),
	}
	if !imagined {
		d.refused = &atomic.Bool{}
	}
	if owner != nil {
		d.choices = &choices{parts: map[string]ledger.Resources{}}
	}
	state.Write(stateKey, d)
	return nil, nil
}

// PreFilterExtensions returns what adapts the cycle's data to pods that come and go in what-if searches.
func (p *ReserveCache) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod records that a pod is nominated to a node. An owner that will use a slot there counts as its consumer; otherwise both
// its request and its slot would be kept from others. All other pods, and consumers, are in the NodeInfo.
func (p *ReserveCache) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, info fwk.NodeInfo) *fwk.Status {
	d, pod := read(state), added.GetPod()
	if d == nil || pod.Spec.NodeName != "" {
		return nil
	}
	r, name := p.running, info.Node().Name
	held := r.view.Node(name)
	if held == nil {
		return nil
	}
	asker, owner := r.askerFor(pod)
	if owner == nil || slices.ContainsFunc(d.takenOn(name), func(t holds.Taken) bool { return t.Pod == pod.UID }) {
		return nil
	}
	request := r.ledger.Requests(pod)
	allocatable, requested := amounts(info.GetAllocatable()), requestedOf(info)
	requested = requested.Clone() // the map is the NodeInfo's
	requested.Add(&request, -1)
	pods := podsOf(info.GetPods())
	verdict := held.Fit(&holds.Question{
		Who: &asker, Request: &request, Allocatable: &allocatable, Requested: &requested, Taken: d.takenOn(name),
		Present: func(uid types.UID) (ledger.Resources, bool) {
			requests, there := pods.requests(uid)
			return requests, there && uid != pod.UID
		},
	})
	if !verdict.Uses() {
		return nil
	}
	changed := *d
	changed.nominated = maps.Clone(d.nominated)
	if changed.nominated == nil {
		changed.nominated = map[string][]holds.Taken{}
	}
	changed.nominated[name] = append(slices.Clone(d.nominated[name]), holds.Taken{Claim: owner.Claim, Pod: pod.UID, Took: verdict.Takes})
	state.Write(stateKey, &changed)
	return nil
}

// RemovePod has nothing to do: the slot of a consumer that is not on the node is unused.
func (*ReserveCache) RemovePod(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}
