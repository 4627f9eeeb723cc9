package explain

import (
	"fmt"
	"strings"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
)

// movesOf says what ZoneRebalances would do with a pod, have done with it, or why they leave it where it is.
func movesOf(c *census.Census, p *census.Pod) []string {
	var out []string
	for _, r := range snapshot.Sorted[*v1alpha1.ZoneRebalance](c.Snapshot, "") {
		for i := range r.Status.Plan {
			if m := &r.Status.Plan[i]; m.Namespace == p.Namespace && m.Name == p.Name && p.On != nil && p.On.Zone == m.From {
				out = append(out, fmt.Sprintf("ZoneRebalance %s: would move %s, in batch %d, with mode Evict; %s", r.Name, way(&m.MovedPod), m.Batch, m.Rules))
			}
		}
		for i := range r.Status.Moves {
			if m := &r.Status.Moves[i]; m.UID == p.UID {
				out = append(out, fmt.Sprintf("ZoneRebalance %s: %s", r.Name, ownMove(m)))
			}
		}
		for i := range r.Status.Stays {
			s := &r.Status.Stays[i]
			if p.On != nil && s.Zone == p.On.Zone && s.Workload == c.Workload(p.Pod) {
				out = append(out, fmt.Sprintf("ZoneRebalance %s: pods of its workload stay in zone %s: %s", r.Name, s.Zone, s.Why))
			}
		}
	}
	return out
}

func way(m *v1alpha1.MovedPod) string {
	return "from zone " + m.From + " to " + strings.Join(m.To, " or ")
}

// ownMove says how far the move of a pod has come.
func ownMove(m *v1alpha1.RebalanceMove) string {
	switch m.State {
	case v1alpha1.MoveEvicting:
		return "is being evicted, " + way(&m.MovedPod)
	case v1alpha1.MoveNotEvicted, v1alpha1.MoveBudgetExhausted, v1alpha1.MoveRefused:
		return fmt.Sprintf("was not moved %s: %s: %s", way(&m.MovedPod), m.State, m.Why)
	default:
		return "is evicted, " + way(&m.MovedPod)
	}
}
