package rebalance

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/internal/nodes"
)

// ZoneState says how many nodes of a zone are usable: ready and not cordoned.
type ZoneState string

// The states of a zone.
const (
	Up        ZoneState = "Up"
	Disrupted ZoneState = "Disrupted" // most of its nodes are not usable
	Down      ZoneState = "Down"      // none is
)

// A zone is Disrupted from so many nodes on that are not usable, if they are so many percent. They are those of the
// node lifecycle controller (Controller.ComputeZoneState, --unhealthy-zone-threshold), which evicts more slowly from
// then on.
const (
	disruptedNodes   = 3
	disruptedPercent = 55
)

// zoneStates returns the states of the zones that have nodes.
func zoneStates(c *census.Census) map[string]ZoneState {
	all, lost := map[string]int{}, map[string]int{}
	for _, node := range c.Nodes {
		if node.Zone == "" {
			continue
		}
		all[node.Zone]++
		if !nodes.Usable(node.Node) {
			lost[node.Zone]++
		}
	}
	out := map[string]ZoneState{}
	for zone, n := range all {
		switch {
		case lost[zone] == n:
			out[zone] = Down
		case lost[zone] >= disruptedNodes && 100*lost[zone] >= disruptedPercent*n:
			out[zone] = Disrupted
		default:
			out[zone] = Up
		}
	}
	return out
}

// ZonesDigest returns a digest of the states of the zones and of the policies that select selected pods. While it
// changes, where pods belong is not settled.
func ZonesDigest(c *census.Census, selects func(*v1.Pod) bool) string {
	h := fnv.New64a()
	states := zoneStates(c)
	for _, zone := range slices.Sorted(maps.Keys(states)) {
		fmt.Fprintln(h, zone, states[zone])
	}
	for _, p := range snapshot.Sorted[*v1alpha1.ZoneSpreadPolicy](c.Snapshot, "") {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || cmp.Or(p.Spec.TopologyKey, v1.LabelTopologyZone) != v1.LabelTopologyZone {
			continue
		}
		if slices.ContainsFunc(c.PodsIn(p.Namespace), func(pod *census.Pod) bool {
			return selector.Matches(labels.Set(pod.Labels)) && selects(pod.Pod)
		}) {
			fmt.Fprintln(h, p.UID, p.Generation)
		}
	}
	return strconv.FormatUint(h.Sum64(), 16)
}
