package board

import (
	"math"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// domains counts the pods that a constraint of the given pod counts, in each
// domain that is eligible for that pod. Eligibility follows the constraint's
// nodeAffinityPolicy (Honor unless it says otherwise) and nodeTaintsPolicy
// (Ignore unless it says otherwise).
func (r *recount) domains(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) map[string]int {
	selector, err := selectorOf(pod, c)
	counts := map[string]int{}
	for _, n := range r.order {
		domain, ok := n.node.Labels[c.TopologyKey]
		if !ok || !eligible(pod, n.node, c) {
			continue
		}
		counts[domain] += 0 // an eligible domain without pods counts too
		if err != nil {
			continue
		}
		for _, p := range n.pods {
			if p.Namespace == pod.Namespace && p.DeletionTimestamp == nil && selector.Matches(labels.Set(p.Labels)) {
				counts[domain]++
			}
		}
	}
	return counts
}

func selectorOf(pod *corev1.Pod, c *corev1.TopologySpreadConstraint) (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		return nil, err
	}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			equal := labels.SelectorFromSet(labels.Set{key: value})
			requirements, _ := equal.Requirements()
			selector = selector.Add(requirements...)
		}
	}
	return selector, nil
}

func eligible(pod *corev1.Pod, node *corev1.Node, c *corev1.TopologySpreadConstraint) bool {
	if (c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == corev1.NodeInclusionPolicyHonor) && !selects(pod, node) {
		return false
	}
	return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == corev1.NodeInclusionPolicyIgnore || tolerates(pod, node)
}

// lowest is the global minimum: zero when there are fewer domains than the
// constraint demands.
func lowest(counts map[string]int, c *corev1.TopologySpreadConstraint) int {
	if c.MinDomains != nil && len(counts) < int(*c.MinDomains) {
		return 0
	}
	low := math.MaxInt
	for _, n := range counts {
		low = min(low, n)
	}
	if low == math.MaxInt {
		return 0
	}
	return low
}

// skew is how far the fullest domain is above the global minimum.
func skew(counts map[string]int, c *corev1.TopologySpreadConstraint) int {
	high := 0
	for _, n := range counts {
		high = max(high, n)
	}
	return high - lowest(counts, c)
}
