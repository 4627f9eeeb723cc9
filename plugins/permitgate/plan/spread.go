package plan

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// spreadConstraint is one topologySpreadConstraint of a class, before the plan places anybody.
type spreadConstraint struct {
	key        string
	hard       bool
	maxSkew    int
	minDomains int
	selector   int
	self       int     // 1 when the class's own pods match
	domainOf   []int32 // of each node, -1 for one without the key
	counted    []bool  // whether the pods of a node count
	names      []string
	counts     []int  // by domain
	exists     []bool // whether a domain has a node that counts, and so takes part in the minimum
}

// spreadOf builds the constraints of a class.
func (p *planner) spreadOf(c *class) {
	pod := c.pods[0]
	hard := hardKeys(pod)
	var affinity *nodeaffinity.RequiredNodeAffinity
	for k := range pod.Spec.TopologySpreadConstraints {
		from := &pod.Spec.TopologySpreadConstraints[k]
		id, ok := p.spreadSelector(pod, from)
		if !ok {
			continue // the plugin that spreads refuses the pod in its own words
		}
		s := &spreadConstraint{
			key: from.TopologyKey, hard: from.WhenUnsatisfiable == v1.DoNotSchedule,
			maxSkew: int(from.MaxSkew), minDomains: 1, selector: id, counted: make([]bool, p.n),
		}
		if from.MinDomains != nil {
			s.minDomains = int(*from.MinDomains)
		}
		if c.matches[id] {
			s.self = 1
		}
		s.domainOf, s.names = p.domains(s.key)
		s.counts, s.exists = make([]int, len(s.names)), make([]bool, len(s.names))
		honorAffinity := from.NodeAffinityPolicy == nil || *from.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor
		honorTaints := from.NodeTaintsPolicy != nil && *from.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor
		if honorAffinity && affinity == nil {
			a := nodeaffinity.GetRequiredNodeAffinity(pod)
			affinity = &a
		}
		p.each(func(i int) {
			node := p.Cluster.Node(i)
			if s.domainOf[i] < 0 || s.hard && !hasKeys(node, hard) {
				return
			}
			if honorAffinity {
				if match, err := affinity.Match(node); err != nil || !match {
					return
				}
			}
			s.counted[i] = !honorTaints || toleratesNode(node, pod.Spec.Tolerations, p.ComparisonOperators)
		})
		living := p.selectors[id].living
		for i, d := range s.domainOf {
			if s.counted[i] {
				s.exists[d] = true
				s.counts[d] += int(living[i])
			}
		}
		c.spread = append(c.spread, len(p.spread))
		p.spread = append(p.spread, s)
	}
}

func hasKeys(node *v1.Node, keys []string) bool {
	for _, key := range keys {
		if _, ok := node.Labels[key]; !ok {
			return false
		}
	}
	return true
}

// least returns the smallest count of a constraint's domains, 0 when there are fewer than minDomains.
func (s *spreadConstraint) least(counts []int) int {
	least, domains := -1, 0
	for d, n := range counts {
		if !s.exists[d] {
			continue
		}
		domains++
		if least < 0 || n < least {
			least = n
		}
	}
	if domains < s.minDomains || least < 0 {
		return 0
	}
	return least
}

// term is one required affinity or anti-affinity term of a class, before the plan places anybody.
type term struct {
	class    int
	anti     bool
	key      string
	selector int
	domainOf []int32
	names    []string
	// company is how many pods of a domain the term matches, and total how many of all domains.
	company []int32
	total   int32
	// self tells whether the class's own pods match.
	self bool
}

// termsOf builds the terms of a class.
func (p *planner) termsOf(index int, c *class) {
	pod := c.pods[0]
	forEachTerm(pod, func(from *v1.PodAffinityTerm, anti bool) {
		id, ok := p.termSelector(pod, from)
		if !ok {
			return // left to the plugin InterPodAffinity
		}
		t := &term{class: index, anti: anti, key: from.TopologyKey, selector: id, self: c.matches[id]}
		t.domainOf, t.names = p.domains(t.key)
		t.company = make([]int32, len(t.names))
		for i, n := range p.selectors[id].perNode {
			if n > 0 && t.domainOf[i] >= 0 {
				t.company[t.domainOf[i]] += n
				t.total += n
			}
		}
		c.terms = append(c.terms, len(p.terms))
		p.terms = append(p.terms, t)
	})
}

// domains numbers the values of a topology key in the order of their names' first node, and returns the
// number of each node, -1 for one without the key.
func (p *planner) domains(key string) ([]int32, []string) {
	if t, ok := p.topologies[key]; ok {
		return t.of, t.names
	}
	t := topology{of: make([]int32, p.n)}
	index := map[string]int32{}
	for i := range t.of {
		value, ok := p.Cluster.Node(i).Labels[key]
		if !ok {
			t.of[i] = -1
			continue
		}
		d, known := index[value]
		if !known {
			d = int32(len(t.names)) //nolint:gosec // as many as nodes at most
			index[value] = d
			t.names = append(t.names, value)
		}
		t.of[i] = d
	}
	p.topologies[key] = t
	return t.of, t.names
}

type topology struct {
	of    []int32
	names []string
}
