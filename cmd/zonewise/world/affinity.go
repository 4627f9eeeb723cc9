package world

import (
	"encoding/json"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// term is one required affinity or anti-affinity term of a class, with where there is what it matches.
type term struct {
	key     string
	anti    bool
	self    bool
	anyone  bool
	company map[string]int // by domain
}

// bearers are pods with the same required anti-affinity term.
type bearers struct {
	term       *corev1.PodAffinityTerm
	example    *corev1.Pod
	selector   labels.Selector
	namespaces namespaceSet
	pods       []*Pod
}

// namespaceSet is the namespaces that a term looks at.
type namespaceSet struct {
	names    []string
	selector labels.Selector // nil when the term has none
}

func namespacesOf(t *corev1.PodAffinityTerm, pod *corev1.Pod) namespaceSet {
	set := namespaceSet{names: t.Namespaces}
	if len(t.Namespaces) == 0 && t.NamespaceSelector == nil {
		set.names = []string{pod.Namespace}
	}
	if t.NamespaceSelector != nil {
		if selector, err := metav1.LabelSelectorAsSelector(t.NamespaceSelector); err == nil {
			set.selector = selector
		}
	}
	return set
}

// has tells whether a namespace is in the set. A namespace whose labels could not be read is in it when the
// selector selects all.
func (w *World) has(set namespaceSet, namespace string) bool {
	return slices.Contains(set.names, namespace) || set.selector != nil && set.selector.Matches(labels.Set(w.namespaces[namespace]))
}

func antiTerms(pod *corev1.Pod) []corev1.PodAffinityTerm {
	if a := pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
		return a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// bear files a pod under its anti-affinity terms.
func (w *World) bear(p *Pod) {
	terms := antiTerms(p.Object)
	for i := range terms {
		t := &terms[i]
		data, err := json.Marshal(t)
		if err != nil {
			continue
		}
		parts := []string{p.Object.Namespace, string(data)}
		for _, label := range slices.Concat(t.MatchLabelKeys, t.MismatchLabelKeys) {
			parts = append(parts, p.Object.Labels[label])
		}
		key := strings.Join(parts, "\x00")
		b := w.bearers[key]
		if b == nil {
			b = &bearers{term: t, example: p.Object, selector: selectorOf(t.LabelSelector, p.Object, t.MatchLabelKeys, t.MismatchLabelKeys), namespaces: namespacesOf(t, p.Object)}
			w.bearers[key] = b
		}
		b.pods = append(b.pods, p)
	}
}

// countTerms counts what the terms of a class look at, and where other pods' terms keep it off.
func (w *World) countTerms(c *Class) {
	add := func(terms []corev1.PodAffinityTerm, anti bool) {
		for i := range terms {
			c.near = append(c.near, w.countTerm(c, &terms[i], anti))
		}
	}
	if a := c.pod.Spec.Affinity; a != nil && a.PodAffinity != nil {
		add(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, false)
	}
	add(antiTerms(c.pod), true)

	c.forbidden = make([]bool, len(w.Nodes))
	for _, b := range w.bearers {
		if !b.selector.Matches(labels.Set(c.pod.Labels)) || !w.has(b.namespaces, c.pod.Namespace) {
			continue
		}
		domains := map[string]bool{}
		for _, p := range b.pods {
			if p.Node != nil {
				if value, ok := domain(p.Node, b.term.TopologyKey); ok {
					domains[value] = true
				}
			}
		}
		for i, n := range w.Nodes {
			if value, ok := domain(n, b.term.TopologyKey); ok && domains[value] {
				c.forbidden[i] = true
			}
		}
	}
}

func (w *World) countTerm(c *Class, spec *corev1.PodAffinityTerm, anti bool) *term {
	selector := selectorOf(spec.LabelSelector, c.pod, spec.MatchLabelKeys, spec.MismatchLabelKeys)
	namespaces := namespacesOf(spec, c.pod)
	t := &term{
		key: spec.TopologyKey, anti: anti, company: map[string]int{},
		self: selector.Matches(labels.Set(c.pod.Labels)) && w.has(namespaces, c.pod.Namespace),
	}
	for namespace := range w.places {
		if !w.has(namespaces, namespace) {
			continue
		}
		for _, p := range w.matching(namespace, selector) {
			if p.Node == nil {
				continue
			}
			t.anyone = true
			if value, ok := domain(p.Node, t.key); ok {
				t.company[value]++
			}
		}
	}
	return t
}

// fits tells whether one more pod may go to a node. The first pod of those that want to be together may go
// anywhere.
func (t *term) fits(n *Node, all []*term) bool {
	value, ok := domain(n, t.key)
	if t.anti {
		return !ok || t.company[value] == 0
	}
	if !ok {
		return false
	}
	return t.company[value] > 0 || firstOfAll(all)
}

func firstOfAll(all []*term) bool {
	for _, t := range all {
		if !t.anti && (t.anyone || !t.self) {
			return false
		}
	}
	return true
}

// placed counts a pod of the class on a node.
func (t *term) placed(n *Node, delta int) {
	if value, ok := domain(n, t.key); ok && t.self {
		t.company[value] += delta
		t.anyone = t.anyone || delta > 0
	}
}
