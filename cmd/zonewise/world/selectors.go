package world

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// matching yields the pods of a namespace that a selector matches, bound or not.
func (w *World) matching(namespace string, selector labels.Selector) []*Pod {
	candidates := w.candidates(namespace, selector)
	var out []*Pod
	for _, p := range candidates {
		if selector.Matches(labels.Set(p.Object.Labels)) {
			out = append(out, p)
		}
	}
	return out
}

// candidates narrows the pods of a namespace down by one requirement of a selector.
func (w *World) candidates(namespace string, selector labels.Selector) []*Pod {
	best := w.places[namespace]
	requirements, selectable := selector.Requirements()
	if !selectable {
		return nil
	}
	for i := range requirements {
		r := &requirements[i]
		if op := r.Operator(); op != selection.Equals && op != selection.DoubleEquals && op != selection.In {
			continue
		}
		values := r.Values()
		if values.Len() != 1 {
			continue
		}
		value, _ := values.PopAny()
		if found := w.byLabel[labelKey{namespace, r.Key(), value}]; len(found) < len(best) {
			best = found
		}
	}
	return best
}

// selectorOf returns the selector of a constraint or a term for a pod, and nil for one that does not parse or is
// absent, which matches nothing.
func selectorOf(s *metav1.LabelSelector, pod *corev1.Pod, matchLabelKeys, mismatchLabelKeys []string) labels.Selector {
	if s == nil {
		return labels.Nothing()
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	add := func(keys []string, op selection.Operator) {
		for _, key := range keys {
			value, ok := pod.Labels[key]
			if !ok {
				continue
			}
			if r, err := labels.NewRequirement(key, op, []string{value}); err == nil {
				selector = selector.Add(*r)
			}
		}
	}
	add(matchLabelKeys, selection.In)
	add(mismatchLabelKeys, selection.NotIn)
	return selector
}

// domain returns the value of a topology key on a node.
func domain(n *Node, key string) (string, bool) {
	if key == corev1.LabelTopologyZone {
		return n.Zone, n.Zone != ""
	}
	value, ok := n.Object.Labels[key]
	return value, ok
}
