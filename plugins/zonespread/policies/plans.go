package policies

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Key is equal for pods of a namespace that the same policies judge by the same counts, as long as the policies do not
// change, and empty for a pod that no hard policy is about. It is for those who plan many pods at once.
func (s *Policies) Key(pod *v1.Pod) string {
	if !s.Selects(pod) {
		return ""
	}
	var b strings.Builder
	for _, a := range s.of(pod) {
		if a.policy.Hard() {
			fmt.Fprintf(&b, "%p %s;", a.policy, a.policy.SelectorFor(pod.Labels))
		}
	}
	return b.String()
}

// Zones names what decides about a node: Check says the same of two nodes for which it is the same.
func (v *Verdicts) Zones(node *v1.Node) string {
	var b strings.Builder
	for i := range v.rows {
		zone, ok := node.Labels[v.rows[i].applied.policy.TopologyKey()]
		fmt.Fprintf(&b, "%t %q;", ok, zone)
	}
	return b.String()
}
