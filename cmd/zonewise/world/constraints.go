package world

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"zonewise.dev/plugins/zonespread/counts"
)

// constraint is one topologySpreadConstraint of a class, with what is counted for it.
type constraint struct {
	spec     *corev1.TopologySpreadConstraint
	hard     bool
	self     bool
	domainOf []int // of each node, -1 for one without the key or one that does not count
	keyOf    []int // the same, of nodes that do not count too
	names    []string
	counts   []int
	exists   []bool
	minimum  int
}

// countConstraints counts what the constraints of a class look at.
func (w *World) countConstraints(c *Class) {
	for i := range c.pod.Spec.TopologySpreadConstraints {
		spec := &c.pod.Spec.TopologySpreadConstraints[i]
		selector := selectorOf(spec.LabelSelector, c.pod, spec.MatchLabelKeys, nil)
		s := &constraint{
			spec: spec, hard: spec.WhenUnsatisfiable == corev1.DoNotSchedule, self: selector.Matches(labels.Set(c.pod.Labels)),
			domainOf: make([]int, len(w.Nodes)), keyOf: make([]int, len(w.Nodes)),
		}
		honorAffinity := ptr.Deref(spec.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor) == corev1.NodeInclusionPolicyHonor
		honorTaints := ptr.Deref(spec.NodeTaintsPolicy, corev1.NodeInclusionPolicyIgnore) == corev1.NodeInclusionPolicyHonor
		index := map[string]int{}
		for j, n := range w.Nodes {
			s.domainOf[j], s.keyOf[j] = -1, -1
			value, ok := domain(n, spec.TopologyKey)
			if !ok || n.Lost {
				continue
			}
			at, seen := index[value]
			if !seen {
				at = len(s.names)
				index[value] = at
				s.names = append(s.names, value)
				s.counts = append(s.counts, 0)
				s.exists = append(s.exists, false)
			}
			s.keyOf[j] = at
			if c.static[j] == noKey && s.hard || honorAffinity && !c.admitted(j) || honorTaints && !c.tolerated(j) {
				continue
			}
			s.domainOf[j] = at
			s.exists[at] = true
		}
		for _, p := range w.matching(c.pod.Namespace, selector) {
			if p.Node != nil {
				if at := s.domainOf[p.Node.index]; at >= 0 {
					s.counts[at]++
				}
			}
		}
		s.measure()
		c.zones = append(c.zones, s)
	}
}

// measure computes what the domains are measured against.
func (s *constraint) measure() {
	minimum, domains := math.MaxInt32, 0
	for at, n := range s.counts {
		if s.exists[at] {
			domains++
			minimum = min(minimum, n)
		}
	}
	s.minimum = counts.GlobalMinimum(minimum, domains, int(ptr.Deref(s.spec.MinDomains, 1)))
}

// fits tells whether one more pod may go to a node.
func (s *constraint) fits(node int) bool {
	at := s.keyOf[node]
	return at >= 0 && counts.Fits(s.counts[at], s.self, s.minimum, s.spec.MaxSkew)
}

// placed counts a pod of the class on a node.
func (s *constraint) placed(node, delta int) {
	if at := s.domainOf[node]; at >= 0 && s.self {
		s.counts[at] += delta
		s.measure()
	}
}
