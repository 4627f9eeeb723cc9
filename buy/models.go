package buy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/internal/nodes"
)

// modelsPerZone is how many kinds of nodes of a zone are tried: the most frequent ones.
const modelsPerZone = 3

// Model is a node that stands for those of its kind in its zone: with the same room, labels and taints.
type Model struct {
	Zone, Node string
	cpu        int64
	frequency  int
}

// Models returns the kinds of nodes that may be bought: of each zone the most frequent kinds of its usable nodes, the
// smallest first.
func Models(all []*v1.Node) []Model {
	kinds := map[string]*Model{}
	for _, node := range slices.SortedFunc(slices.Values(all), func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) }) {
		if !nodes.Usable(node) {
			continue
		}
		key := KindOf(node)
		if kinds[key] == nil {
			kinds[key] = &Model{Zone: node.Labels[v1.LabelTopologyZone], Node: node.Name, cpu: node.Status.Allocatable.Cpu().MilliValue()}
		}
		kinds[key].frequency++
	}
	byZone := map[string][]Model{}
	for _, m := range kinds {
		byZone[m.Zone] = append(byZone[m.Zone], *m)
	}
	var out []Model
	for _, models := range byZone {
		slices.SortFunc(models, func(a, b Model) int {
			return cmp.Or(cmp.Compare(b.frequency, a.frequency), strings.Compare(a.Node, b.Node))
		})
		out = append(out, models[:min(len(models), modelsPerZone)]...)
	}
	slices.SortFunc(out, func(a, b Model) int {
		return cmp.Or(cmp.Compare(a.cpu, b.cpu), strings.Compare(a.Zone, b.Zone), strings.Compare(a.Node, b.Node))
	})
	return out
}

// KindOf is equal for nodes that are the same to a scheduler, but for their names.
func KindOf(node *v1.Node) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
		if value := node.Labels[key]; key == v1.LabelTopologyZone || key != v1.LabelHostname && value != node.Name {
			out = append(out, key+"="+value)
		}
	}
	for _, t := range node.Spec.Taints {
		out = append(out, fmt.Sprint(t.Key, "=", t.Value, ":", t.Effect))
	}
	return strings.Join(append(out, sizeKey(node.Status.Allocatable)), "\n")
}
