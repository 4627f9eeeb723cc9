package reservecache

import (
	"context"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// elsewhere answers, at most once in a cycle, whether the pod finds a node of the better kind anywhere: in Headroom mode
// one where it needs no slot, in Guarantee mode one where it has a slot.
type elsewhere struct {
	once  sync.Once
	found bool
	// state and nodes are those of PreFilter.
	state fwk.CycleState
	nodes []fwk.NodeInfo
}

// betterElsewhere reports whether some node of the cluster would take the pod in the better way of its reservation's mode:
// beside all slots (Headroom) or in a slot (Guarantee). All nodes are looked at, not the sample that the scheduler
// stops at, with all filters, since the only free node may be one that spreading forbids. The answer is found at most once
// in a cycle, and only when a node of the lesser kind has passed all filters but this one.
//
// Filter runs behind PreFilter, so that the state of all plugins is there; what Filter cannot do, PreFilter could even
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
// nearly all nodes of a full cluster at little cost. For an owner that uses slots first these are the few that have its slots.
func (p *ReserveCache) betterNodes(d *cycleData, nodes []fwk.NodeInfo) []fwk.NodeInfo {
	if d.asker.Use == holds.UseFirst {
		lister := p.handle.SnapshotSharedLister().NodeInfos()
		nodes = nil
		for _, name := range p.running.holds.NodesOf(d.asker.Claim) {
			if info, err := lister.Get(name); err == nil {
				nodes = append(nodes, info)
			}
		}
	}
	var better []fwk.NodeInfo
	for _, info := range nodes {
		allocatable, requested := amounts(info.GetAllocatable()), requestedOf(info)
		if ledger.Lacks(&d.request, &allocatable, &requested) {
			continue
		}
		name := info.Node().Name
		question := d.question(name, &allocatable, &requested, podsOf(info.GetPods()).has)
		verdict := p.running.view.Node(name).Fit(&question)
		if verdict.Fits && verdict.Uses() == (d.asker.Use == holds.UseFirst) {
			better = append(better, info)
		}
	}
	return better
}
