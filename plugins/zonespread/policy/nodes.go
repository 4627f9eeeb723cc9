package policy

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// NodesByZone sums up nodes by the value of a topology key. Nodes without the label are in no zone.
func NodesByZone(nodes []*v1.Node, topologyKey string) map[string]ZoneNodes {
	zones := map[string]ZoneNodes{}
	unknown := map[string]bool{} // zones with a node that does not say since when it is closed
	for _, node := range nodes {
		name, ok := node.Labels[topologyKey]
		if !ok {
			continue
		}
		z := zones[name]
		z.Nodes++
		since, closed := ClosedSince(node)
		switch {
		case !closed:
			z.Open++
		case since.IsZero():
			unknown[name] = true
		case since.After(z.ClosedSince):
			z.ClosedSince = since
		}
		if z.Open > 0 || unknown[name] {
			z.ClosedSince = time.Time{}
		}
		zones[name] = z
	}
	return zones
}

// ClosedSince reports whether a node is closed, which is not Ready or cordoned, and since when: the earlier of the two
// times; zero if both are unknown.
func ClosedSince(node *v1.Node) (since time.Time, closed bool) {
	ready := false
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			ready = c.Status == v1.ConditionTrue
			if !ready {
				since = c.LastTransitionTime.Time
			}
			break
		}
	}
	for i := range node.Spec.Taints {
		at := node.Spec.Taints[i].TimeAdded
		if node.Spec.Unschedulable && at != nil && node.Spec.Taints[i].Key == v1.TaintNodeUnschedulable &&
			(since.IsZero() || at.Time.Before(since)) {
			since = at.Time
		}
	}
	return since, !ready || node.Spec.Unschedulable
}
