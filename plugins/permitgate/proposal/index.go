package proposal

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// classIndex finds the classes that a node's labels may suit. Kueue's topology-aware scheduling gives each member a
// node selector for its host, so that there may be as many classes as nodes.
type classIndex struct {
	all      []int // classes without a node selector
	selected map[string]map[string][]int
	found    []int // the last answer
}

// newClassIndex indexes each class by one label of its node selector, the host name if it has that.
func newClassIndex(r *Request) classIndex {
	x := classIndex{selected: map[string]map[string][]int{}}
	for c := range r.Classes {
		selector := r.Classes[c].Pod.Spec.NodeSelector
		if len(selector) == 0 {
			x.all = append(x.all, c)
			continue
		}
		label := v1.LabelHostname
		if _, selects := selector[label]; !selects {
			label = slices.Min(slices.Collect(maps.Keys(selector)))
		}
		if x.selected[label] == nil {
			x.selected[label] = map[string][]int{}
		}
		x.selected[label][selector[label]] = append(x.selected[label][selector[label]], c)
	}
	return x
}

// classesFor returns the classes that may suit a node, in order. They are valid until the next call.
func (x *classIndex) classesFor(node *v1.Node) []int {
	if len(x.selected) == 0 {
		return x.all
	}
	x.found = append(x.found[:0], x.all...)
	for label, classes := range x.selected {
		if value, labelled := node.Labels[label]; labelled {
			x.found = append(x.found, classes[value]...)
		}
	}
	slices.Sort(x.found)
	return x.found
}
