package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// selector picks the pods that a constraint or an affinity term looks at.
type selector struct {
	labels.Selector
	text       string
	namespaces []string // sorted; nil means all
	// perNode is how many pods of the cluster it picks on each node; living leaves out those that terminate.
	perNode, living []int32
}

func (s *selector) matches(pod *v1.Pod) bool {
	return (s.namespaces == nil || slices.Contains(s.namespaces, pod.Namespace)) && s.Matches(labels.Set(pod.Labels))
}

// selectorID returns the number of a selector, which is new or known.
func (p *planner) selectorID(sel labels.Selector, namespaces []string) int {
	text := sel.String()
	for i := range p.selectors {
		if p.selectors[i].text == text && slices.Equal(p.selectors[i].namespaces, namespaces) &&
			(p.selectors[i].namespaces == nil) == (namespaces == nil) {
			return i
		}
	}
	p.selectors = append(p.selectors, &selector{Selector: sel, text: text, namespaces: namespaces})
	return len(p.selectors) - 1
}

// collectSelectors makes the numbers of all selectors of a pod.
func (p *planner) collectSelectors(pod *v1.Pod) {
	for i := range pod.Spec.TopologySpreadConstraints {
		p.spreadSelector(pod, &pod.Spec.TopologySpreadConstraints[i])
	}
	forEachTerm(pod, func(t *v1.PodAffinityTerm, _ bool) { p.termSelector(pod, t) })
}

// spreadSelector returns the number of a constraint's selector, and false for one that matches nothing
// because it does not parse.
func (p *planner) spreadSelector(pod *v1.Pod, c *v1.TopologySpreadConstraint) (int, bool) {
	sel, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return 0, false
	}
	return p.selectorID(withLabels(sel, pod, c.MatchLabelKeys, true), []string{pod.Namespace}), true
}

// termSelector returns the number of an affinity term's selector, and false for one that is not known
// here: it does not parse, or depends on the labels of namespaces.
func (p *planner) termSelector(pod *v1.Pod, t *v1.PodAffinityTerm) (int, bool) {
	sel, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return 0, false
	}
	sel = withLabels(sel, pod, t.MatchLabelKeys, true)
	sel = withLabels(sel, pod, t.MismatchLabelKeys, false)
	var namespaces []string
	switch {
	case t.NamespaceSelector == nil && len(t.Namespaces) == 0:
		namespaces = []string{pod.Namespace}
	case t.NamespaceSelector == nil:
		namespaces = slices.Sorted(slices.Values(t.Namespaces))
	case len(t.NamespaceSelector.MatchLabels) == 0 && len(t.NamespaceSelector.MatchExpressions) == 0:
	default:
		return 0, false
	}
	return p.selectorID(sel, namespaces), true
}

// withLabels narrows a selector to the pods that share the values of some labels with one pod, or that do
// not. Labels that the pod lacks are passed over.
func withLabels(sel labels.Selector, pod *v1.Pod, keys []string, share bool) labels.Selector {
	for _, key := range keys {
		value, ok := pod.Labels[key]
		if !ok {
			continue
		}
		narrow := metav1.LabelSelectorOpIn
		if !share {
			narrow = metav1.LabelSelectorOpNotIn
		}
		extra, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: narrow, Values: []string{value}}},
		})
		if err != nil {
			continue // a label's value is valid in a selector
		}
		requirements, _ := extra.Requirements()
		sel = sel.Add(requirements...)
	}
	return sel
}

// forEachTerm visits the required affinity and anti-affinity terms of a pod.
func forEachTerm(pod *v1.Pod, visit func(t *v1.PodAffinityTerm, anti bool)) {
	a := pod.Spec.Affinity
	if a == nil {
		return
	}
	if a.PodAffinity != nil {
		for i := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			visit(&a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i], false)
		}
	}
	if a.PodAntiAffinity != nil {
		for i := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			visit(&a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i], true)
		}
	}
}

// countSelected counts the pods of the cluster for all selectors.
func (p *planner) countSelected() {
	if len(p.selectors) == 0 {
		return
	}
	for _, s := range p.selectors {
		s.perNode, s.living = make([]int32, p.n), make([]int32, p.n)
	}
	p.each(func(i int) {
		for pod := range p.Cluster.Pods(i) {
			for _, s := range p.selectors {
				if !s.matches(pod) {
					continue
				}
				s.perNode[i]++
				if pod.DeletionTimestamp == nil {
					s.living[i]++
				}
			}
		}
	})
}
