package reservecache

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// betterNode answers, at most once in a cycle, whether the pod finds a node of the better kind anywhere: in Headroom
// mode one where it needs no slot, in Guarantee mode one where it has a slot.
type betterNode struct {
	once  sync.Once
	found bool
	// state and nodes are those of PreFilter.
	state fwk.CycleState
	nodes []fwk.NodeInfo
}

// betterElsewhere reports whether some node of the cluster would take the pod in the better way of its reservation's
// mode: beside all slots (Headroom) or in a slot (Guarantee). Any node may be the one, not only the sample that the
// scheduler stops at, and all filters are asked, since the only free node may be one that spreading forbids. The answer
// is found at most once in a cycle, and only when a node of the lesser kind has passed all filters but this one.
//
// Filter runs behind PreFilter, so that the state of all plugins is there; what Filter cannot do, PreFilter could even
// less: it knows neither what the others skip nor what they will say. Nodes that a plugin excludes in PreFilter only
// count: the framework does not pass on which these are. An extender may reject any node and is not asked here, so for
// a pod that one filters no node counts as better.
func (p *ReserveCache) betterElsewhere(ctx context.Context, d *cycleData, pod *v1.Pod) bool {
	e := d.betterNode
	e.once.Do(func() {
		if p.filteredByExtender(pod) {
			return
		}
		nodes := e.nodes
		if d.requester.Use == holds.UseFirst {
			nodes = p.nodesOf(d.requester.Claim)
		}
		// The search of the scheduler may end, and cancel ctx, before this one does, and its answer serves the
		// whole cycle.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		state := e.state.Clone()
		probe := *d
		probe.inBetterNodeSearch = true
		state.Write(stateKey, &probe)
		var found atomic.Bool
		// The node that was found last, or one beside it, is likely to have room still.
		start := int(p.foundAt.Load())
		p.handle.Parallelizer().Until(ctx, len(nodes), func(i int) {
			i = (start + i) % len(nodes)
			if p.mayBeBetter(d, nodes[i]) && p.handle.RunFilterPluginsWithNominatedPods(ctx, state, pod, nodes[i]).IsSuccess() {
				found.Store(true)
				p.foundAt.Store(int64(i))
				cancel()
			}
		}, Name)
		e.found = found.Load()
		klog.FromContext(ctx).V(4).Info("Looked for a better node for an owner", "pod", klog.KObj(pod),
			"nodes", len(nodes), "found", e.found)
	})
	return e.found
}

// filteredByExtender reports whether an extender will be asked on which nodes the pod may be.
func (p *ReserveCache) filteredByExtender(pod *v1.Pod) bool {
	return slices.ContainsFunc(p.handle.Extenders(), func(e fwk.Extender) bool { return e.IsFilter() && e.IsInterested(pod) })
}

// nodesOf returns the nodes on which something is held for a claim.
func (p *ReserveCache) nodesOf(claim types.UID) (nodes []fwk.NodeInfo) {
	lister := p.handle.SnapshotSharedLister().NodeInfos()
	for _, name := range p.running.holds.NodesOf(claim) {
		if info, err := lister.Get(name); err == nil {
			nodes = append(nodes, info)
		}
	}
	return nodes
}

// mayBeBetter reports whether a node would take the pod in the better way as far as amounts go, which rules out nearly
// all nodes of a full cluster at little cost.
func (p *ReserveCache) mayBeBetter(d *cycleData, info fwk.NodeInfo) bool {
	allocatable, requested := resourcesOf(info.GetAllocatable()), requestedOf(info)
	if ledger.Lacks(&d.request, &allocatable, &requested) {
		return false
	}
	input := d.fitInput(&allocatable, &requested, p.running.ownedOn(info))
	result := p.running.view.Node(info.Node().Name).Fit(&input)
	return result.Fits && result.UsesOwn == (d.requester.Use == holds.UseFirst)
}
