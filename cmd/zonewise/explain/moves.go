package explain

import (
	"fmt"
	"strings"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
)

// movesOf says what ZoneRebalances have planned for a pod, have done with it, or why they leave it where it is.
func movesOf(c *census.Census, p *census.Pod) []string {
	var out []string
	gang := c.Gang(c.GangOf(p.Pod))
	for _, r := range snapshot.Sorted[*v1alpha1.ZoneRebalance](c.Snapshot, "") {
		for i := range r.Status.Moves {
			m := &r.Status.Moves[i]
			switch p.UID {
			case m.UID:
				out = append(out, fmt.Sprintf("ZoneRebalance %s: %s", r.Name, ownMove(r, m)))
			case m.ReplacedBy:
				out = append(out, fmt.Sprintf("ZoneRebalance %s: runs in place of %s, moved out of zone %s", r.Name, m.Name, m.From))
			}
		}
		for i := range r.Status.PartlyBound {
			if g := &r.Status.PartlyBound[i]; gang != nil && gang.UID() == g.UID && !p.Waits() && g.Why != "" {
				out = append(out, fmt.Sprintf("ZoneRebalance %s: its gang is bound in part, and the bound members are not evicted: %s", r.Name, g.Why))
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

// ownMove says how far the move of a pod has come.
func ownMove(r *v1alpha1.ZoneRebalance, m *v1alpha1.RebalanceMove) string {
	way := "from zone " + m.From + " to " + strings.Join(m.To, " or ")
	if m.PodGroup != "" {
		way = "with the other bound members of " + m.Workload + ", which is bound in part"
	}
	switch m.State {
	case v1alpha1.MovePlanned:
		if r.Spec.Mode != v1alpha1.RebalanceEvict {
			return fmt.Sprintf("would move %s, in batch %d, with mode Evict; %s", way, m.Batch, m.Why)
		}
		return fmt.Sprintf("is to be moved %s, in batch %d; %s", way, m.Batch, m.Why)
	case v1alpha1.MoveEvicting:
		return fmt.Sprintf("is being evicted, %s; %s", way, m.Why)
	case v1alpha1.MoveRefused:
		return fmt.Sprintf("was not moved %s: %s", way, m.Why)
	default:
		return fmt.Sprintf("is evicted, %s", way)
	}
}
