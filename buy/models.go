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

// modelsPerZone is how many kinds of nodes of a zone are tried: those that have most of the pods, then the most frequent ones.
const modelsPerZone = 3

// Model is a node that stands for those of its kind in its zone: with the same room, labels and taints.
type Model struct {
	Zone, Node string
	cpu        int64
	pods       int
	frequency  int
}

// Models returns the kinds of nodes that may be bought: of each zone a few kinds of its usable nodes, those with pods before the others, and the smallest first. pods is how many of the pods for
// which nodes are to be bought are on each node: the kinds that have most of them are taken first, so that a pool of a few nodes is found, and then the most
// frequent ones.
func Models(all []*v1.Node, pods map[string]int) []Model {
	kinds := map[string]*Model{}
	for _, node := range slices.SortedFunc(slices.Values(all), func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) }) {
		if !nodes.Usable(node) {
			continue
		}
		key := kindOf(node)
		if kinds[key] == nil {
			kinds[key] = &Model{Zone: node.Labels[v1.LabelTopologyZone], Node: node.Name, cpu: node.Status.Allocatable.Cpu().MilliValue()}
		}
		kinds[key].frequency++
		kinds[key].pods += pods[node.Name]
	}
	byZone := map[string][]Model{}
	for _, m := range kinds {
		byZone[m.Zone] = append(byZone[m.Zone], *m)
	}
	var out []Model
	for _, models := range byZone {
		slices.SortFunc(models, func(a, b Model) int {
			return cmp.Or(cmp.Compare(b.pods, a.pods), cmp.Compare(b.frequency, a.frequency), strings.Compare(a.Node, b.Node))
		})
		out = append(out, models[:min(len(models), modelsPerZone)]...)
	}
	slices.SortFunc(out, func(a, b Model) int {
		return cmp.Or(cmp.Compare(min(b.pods, 1), min(a.pods, 1)), cmp.Compare(a.cpu, b.cpu), strings.Compare(a.Zone, b.Zone), strings.Compare(a.Node, b.Node))
	})
	return out
}

// kindOf is equal for nodes that are the same to a scheduler, but for their names.
func kindOf(node *v1.Node) string {
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

// Search finds the least that has to be bought, as numbers of nodes like the models, by their names. enough says whether a
// purchase is enough; more is never worse for it. most is how many of one model are tried, and likely a number that is tried before that. It prefers one
// model, of which it finds the least number and then the first. If none is enough alone, it takes as many of each, and then gives up what
// it can. It returns nil if that is not enough either.
func Search(models []Model, likely, most int, enough func(bought map[string]int) (bool, error)) (map[string]int, error) {
	var best map[string]int
	limit := most
	for _, m := range models {
		ofOne := func(n int) map[string]int { return map[string]int{m.Node: n} }
		n, err := leastOf(likely, limit, func(n int) (bool, error) { return enough(ofOne(n)) })
		if err != nil {
			return nil, err
		}
		if n <= limit {
			best, limit = ofOne(n), n-1
		}
	}
	if best != nil || len(models) < 2 {
		return best, nil
	}
	ofEach := func(n int) map[string]int {
		out := map[string]int{}
		for _, m := range models {
			out[m.Node] = n
		}
		return out
	}
	n, err := least(1, most, func(n int) (bool, error) { return enough(ofEach(n)) })
	if err != nil || n > most {
		return nil, err
	}
	bought := ofEach(n)
	for _, m := range slices.Backward(models) { // the large ones first
		n, err := least(0, bought[m.Node], func(n int) (bool, error) {
			fewer := maps.Clone(bought)
			fewer[m.Node] = n
			return enough(fewer)
		})
		if err != nil {
			return nil, err
		}
		bought[m.Node] = n
	}
	maps.DeleteFunc(bought, func(_ string, n int) bool { return n == 0 })
	return bought, nil
}

// leastOf returns the smallest number from 1 to high that is enough, high+1 if none is. It begins with a likely one.
func leastOf(likely, high int, enough func(n int) (bool, error)) (int, error) {
	if likely < 1 || likely >= high {
		return least(1, high, enough)
	}
	yes, err := enough(likely)
	switch {
	case err != nil:
		return 0, err
	case yes:
		return leastBelow(1, likely, enough)
	}
	return least(likely+1, high, enough)
}

// least returns the smallest number from low to high that is enough, high+1 if none is.
func least(low, high int, enough func(n int) (bool, error)) (int, error) {
	if low > high {
		return high + 1, nil
	}
	yes, err := enough(high)
	if err != nil || !yes {
		return high + 1, err
	}
	return leastBelow(low, high, enough)
}

// leastBelow is the same for a high that is enough.
func leastBelow(low, high int, enough func(n int) (bool, error)) (int, error) {
	for low < high {
		middle := (low + high) / 2
		yes, err := enough(middle)
		if err != nil {
			return 0, err
		}
		if yes {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return high, nil
}
