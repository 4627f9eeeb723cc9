package reservecache

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// betterElsewhere tells whether some node of the cluster would take the pod in the better way of its reservation's mode:
// beside all slots (Headroom) or in a slot (Guarantee). All nodes are looked at, not the sample that the scheduler
// stops at, with all filters, since the only free node may be one that spreading forbids. The answer is found at most once
// in a cycle, and only when a node of the lesser kind has passed all filters but this one.
//
// Filter runs behind PreFilter, so that the state of all plugins is there; what Filter can not do, PreFilter could even
// less: it knows neither what the others skip nor what they will say.
func (p *ReserveCache) betterElsewhere(ctx context.Context, d *cycleData, pod *v1.Pod) bool {
	e := d.elsewhere
	e.once.Do(func() {
		// The search of the scheduler may end, and cancel ctx, before this one does, and its answer serves the
		// whole cycle.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		candidates := p.betterNodes(d, e.nodes)
		if len(candidates) == 0 {
			return
		}
		state := e.state.Clone()
		probe := *d
		probe.probing, probe.nominated = true, nil
		state.Write(stateKey, &probe)
		var found atomic.Bool
		p.handle.Parallelizer().Until(ctx, len(candidates), func(i int) {
			if p.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, candidates[i]).IsSuccess() {
				found.Store(true)
				cancel()
			}
		}, Name)
		e.found = found.Load()
		klog.FromContext(ctx).V(4).Info("Looked for a better node for an owner", "pod", klog.KObj(pod), "candidates", len(candidates), "found", e.found)
	})
	return e.found
}

// betterNodes returns the nodes that would take the pod in the better way as far as amounts go, which rules out
// nearly all nodes of a full cluster at little cost.
func (p *ReserveCache) betterNodes(d *cycleData, nodes []fwk.NodeInfo) []fwk.NodeInfo {
	var better []fwk.NodeInfo
	for _, info := range nodes {
		holds := p.running.view.Node(info.Node().Name)
		if holds == nil && d.asker.Use == ledger.UseFirst {
			continue
		}
		allocatable, sum := amounts(info.GetAllocatable()), requestedOf(info)
		if exceeds(&d.request, &sum, &allocatable) {
			continue
		}
		verdict := ledger.Fits(&d.request, &allocatable, &sum, holds, &d.asker, podsOf(info.GetPods()).has)
		if verdict.Fits && (verdict.Slot != nil) == (d.asker.Use == ledger.UseFirst) {
			better = append(better, info)
		}
	}
	return better
}

// exceeds tells whether a request is more than what is left of a node, holds aside.
func exceeds(request, requested, allocatable *ledger.Resources) bool {
	if request.Pods+requested.Pods > allocatable.Pods ||
		request.MilliCPU > 0 && request.MilliCPU+requested.MilliCPU > allocatable.MilliCPU ||
		request.Memory > 0 && request.Memory+requested.Memory > allocatable.Memory ||
		request.EphemeralStorage > 0 && request.EphemeralStorage+requested.EphemeralStorage > allocatable.EphemeralStorage {
		return true
	}
	for name, amount := range request.Scalar {
		// Resources that an extender or a driver keeps are not on the node's list; the filters judge them.
		if limit, known := allocatable.Scalar[name]; known && amount+requested.Scalar[name] > limit {
			return true
		}
	}
	return false
}
