package survival

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/sim"
)

// loss is what is lost at once: a zone, or some nodes.
type loss struct {
	zone  string
	nodes []string // sorted; nil if it is a zone
}

// key tells losses apart.
func (l *loss) key() string { return l.zone + "\n" + strings.Join(l.nodes, "\n") }

func (l *loss) String() string {
	const named = 3
	switch n := len(l.nodes); {
	case n == 0:
		return "zone " + l.zone
	case n == 1:
		return "node " + l.nodes[0]
	case n <= named:
		return "the nodes " + strings.Join(l.nodes, ", ")
	default:
		return fmt.Sprintf("the nodes %s and %d more", strings.Join(l.nodes[:named], ", "), n-named)
	}
}

// includes reports whether a node is lost.
func (l *loss) includes(node *v1.Node) bool {
	if l.nodes == nil {
		return node.Labels[v1.LabelTopologyZone] == l.zone
	}
	_, lost := slices.BinarySearch(l.nodes, node.Name)
	return lost
}

// takesZone reports whether all nodes of a zone are lost, those that are bought there as well.
func (l *loss) takesZone(zone string) bool { return l.nodes == nil && l.zone == zone }

func lossOfNodes(nodes []string) *loss {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	return &loss{nodes: nodes}
}

// load is what the loss of a node would do.
type load struct {
	node        *v1.Node
	allocatable ledger.Resources
	pods        int              // that would be displaced
	protected   ledger.Resources // what the protected ones of them ask for
	workloads   []int            // how many of them each entry of spec.workloads selects
}

// nodeLoads returns the loads of nodes, for a certificate.
func (c *certificate) nodeLoads(nodes []*v1.Node, pods []*v1.Pod) []*load {
	out := make([]*load, len(nodes))
	byName := map[string]*load{}
	for i, node := range nodes {
		out[i] = &load{node: node, allocatable: ledger.ResourcesOf(node.Status.Allocatable), workloads: make([]int, len(c.workloads))}
		byName[node.Name] = out[i]
	}
	for _, pod := range pods {
		l := byName[pod.Spec.NodeName]
		if l == nil || !live(pod) || sim.NodeBound(pod) {
			continue
		}
		l.pods++
		if c.protects(pod) {
			request := footprintOf(pod)
			l.protected.Add(&request, 1)
		}
		for i := range c.workloads {
			if c.workloads[i].selects(pod) {
				l.workloads[i]++
			}
		}
	}
	return out
}

// partition divides the nodes into sets of n, at random, so that each node is in one. The last set is filled up from
// the first. Single nodes whose loss displaces no pod are left out.
func partition(loads []*load, n int, seed int64) []*loss {
	names := make([]string, 0, len(loads))
	for _, l := range loads {
		if n > 1 || l.pods > 0 {
			names = append(names, l.node.Name)
		}
	}
	drawn := func(name string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strconv.FormatInt(seed, 10) + "/" + name))
		return h.Sum64()
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(drawn(a), drawn(b)), strings.Compare(a, b)) })
	var out []*loss
	for rest := names; len(rest) > 0; {
		set := slices.Clone(rest[:min(n, len(rest))])
		rest = rest[len(set):]
		set = append(set, names[:min(n-len(set), max(0, len(names)-len(set)))]...)
		out = append(out, lossOfNodes(set))
	}
	return out
}

// heaviest chooses the sets of n nodes whose loss is likely to be the worst: the largest nodes, since what is on them
// needs a place and what is free on them is none; those with most of what is protected; and those with most pods of
// each workload. Of the nodes of each zone as well, since pods may be bound to their zone.
func (c *certificate) heaviest(loads []*load, n int) []*loss {
	if n == 1 {
		return nil // each node is lost anyway
	}
	weights := []func(l *load) int64{
		func(l *load) int64 { return l.allocatable.MilliCPU },
		func(l *load) int64 { return l.allocatable.Memory },
		func(l *load) int64 { return l.protected.MilliCPU },
		func(l *load) int64 { return l.protected.Memory },
	}
	for i := range c.workloads {
		weights = append(weights, func(l *load) int64 { return int64(l.workloads[i]) })
	}
	zones := map[string][]*load{"": loads}
	for _, l := range loads {
		if zone := l.node.Labels[v1.LabelTopologyZone]; zone != "" {
			zones[zone] = append(zones[zone], l)
		}
	}
	var out []*loss
	chosen := map[string]bool{}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		for _, weight := range weights {
			nodes := slices.Clone(zones[zone])
			slices.SortStableFunc(nodes, func(a, b *load) int {
				return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(b.protected.MilliCPU, a.protected.MilliCPU), strings.Compare(a.node.Name, b.node.Name))
			})
			if len(nodes) < n || weight(nodes[0]) == 0 {
				continue
			}
			var names []string
			for _, l := range nodes[:n] {
				names = append(names, l.node.Name)
			}
			if l := lossOfNodes(names); !chosen[l.key()] {
				chosen[l.key()] = true
				out = append(out, l)
			}
		}
	}
	return out
}
