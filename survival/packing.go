package survival

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"zonewise.dev/buy"
	"zonewise.dev/plugins/reservecache/ledger"
)

// This file guesses how many nodes are enough, by arithmetic over requests. The scheduler decides; a guess that is near spares it most attempts.

// guesses are by the models' names. each is how many nodes like each of the models that help are likely to be enough together.
func (p *PurchaseSearch) guesses(models []buy.Model) (guesses map[string]buy.Guess, each int) {
	guesses = map[string]buy.Guess{}
	packings := make([]*packing, len(models))
	for i, m := range models {
		packings[i] = p.packingLike(m.Node)
		guesses[m.Node] = buy.Guess{Alone: 1}
	}
	for _, f := range p.failures {
		share, most := 0.0, 0 // of the room that is needed, by a node of each
		for i, m := range models {
			g := guesses[m.Node]
			if f.loss.takesZone(m.Zone) {
				g.Alone = -1
			} else if need := packings[i].nodesFor(f.waiting, f.protected); need > 0 {
				share += 1 / float64(need)
				most = max(most, f.bought[m.Node])
				g.Helps = true
				if g.Alone > 0 {
					g.Alone = max(g.Alone, f.bought[m.Node]+need)
				}
			} else {
				g.Alone = min(g.Alone, 0)
			}
			guesses[m.Node] = g
		}
		if share > 0 {
			each = max(each, most+int(math.Ceil(1/share-1e-9)))
		}
	}
	return guesses, each
}

// packing is what a node like one has for pods.
type packing struct {
	node *v1.Node
	room ledger.Resources
}

// packingLike is what a node like one has beside the pods that run on each such node.
func (p *PurchaseSearch) packingLike(name string) *packing {
	out := &packing{}
	for _, node := range p.nodes {
		if node.Name == name {
			out.node = node
			out.room.Add(ptr.To(ledger.ResourcesOf(node.Status.Allocatable)), 1)
		}
	}
	for _, pod := range p.daemons[name] {
		out.room.Add(ptr.To(footprintOf(pod)), -1)
	}
	return out
}

// nodesFor returns how many such nodes are filled by the pods that they admit, the largest first; 0 if they do not admit all of those that need a place.
func (k *packing) nodesFor(waiting, needing []*v1.Pod) int {
	for _, pod := range needing {
		if !k.admits(pod) {
			return 0
		}
	}
	var sizes []ledger.Resources
	for _, pod := range waiting {
		if k.admits(pod) {
			sizes = append(sizes, footprintOf(pod))
		}
	}
	share := func(size *ledger.Resources) float64 { // of the resource of which it takes most
		most := 0.0
		for name := range size.Named() {
			most = max(most, float64(size.Amount(name))/float64(max(1, k.room.Amount(name))))
		}
		return most
	}
	slices.SortStableFunc(sizes, func(a, b ledger.Resources) int { return cmp.Compare(share(&b), share(&a)) })
	var nodes []ledger.Resources // what is left of each
	for i := range sizes {
		at := slices.IndexFunc(nodes, func(left ledger.Resources) bool { return sizes[i].Exceeds(&left) == "" })
		if at < 0 {
			at = len(nodes)
			nodes = append(nodes, k.room.Clone())
		}
		nodes[at].Add(&sizes[i], -1)
	}
	return len(nodes)
}

// admits reports whether a pod may be on such a node, if it is empty.
func (k *packing) admits(pod *v1.Pod) bool {
	size := footprintOf(pod)
	if size.Exceeds(&k.room) != "" {
		return false
	}
	_, tainted := corev1.FindMatchingUntoleratedTaint(klog.Logger{}, k.node.Spec.Taints, pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule
	}, false)
	if tainted {
		return false
	}
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	matches, err := affinity.Match(k.node)
	return matches && err == nil
}
