package rebalance

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
)

// Standing is how the pods of a cluster stand to the rules about zones that they carry.
type Standing struct {
	// Excess is the potential: the pods that are more than a rule allows in their zone, added over all rules. Every
	// move lowers it.
	Excess int64 `json:"excess"`
	// Missing is how many slots of reservations are not held.
	Missing int64 `json:"missing,omitempty"`
	// Least is how many moves it takes at least until no pod that may move is one too many. Pods that may not move
	// and zones that take none are known to it, and free room is not.
	Least int `json:"leastMoves"`
	// Rules are the rules that some selected pod carries, in an order that copies have in common.
	Rules []RuleStanding `json:"rules"`
	// Stay counts the pods that may not be moved, in zones with more pods than a rule allows, by why they stay.
	Stay map[string]int `json:"stay,omitempty"`

	rules    []*rule
	workload func(*v1.Pod) string
	stays    func(*v1.Pod) string
}

// RuleStanding is one rule with the pods that carry it.
type RuleStanding struct {
	Rule      string   `json:"rule"`
	Workloads []string `json:"workloads"`
	// Pods are those that carry the rule, by zone.
	Pods map[string]int `json:"pods"`
	// Excess is how many pods are more than the rule allows, and Least how many moves it takes at least.
	Excess int64 `json:"excess"`
	Least  int   `json:"leastMoves"`
}

// StandingOf reads a copy that need not be at rest. Of the options it uses Selects and Stays.
func StandingOf(s *sim.Sim, options Options) Standing {
	all := snapshot.New(s.Now())
	all.Add(s.Objects()...)
	c := census.Take(all)
	stay := newStayers(s, options)
	out := Standing{
		Rules: []RuleStanding{}, rules: rulesOf(c, stay.why, options.selects), workload: c.Workload, stays: stay.why,
		Stay: map[string]int{},
	}
	least := map[string]int{} // by set: its rules share pods, and so moves
	for _, r := range out.rules {
		if !r.selected {
			continue
		}
		moves := r.leastMoves()
		least[r.set] = max(least[r.set], moves)
		row := RuleStanding{
			Rule: r.name, Workloads: slices.Sorted(maps.Keys(r.workloads)), Pods: map[string]int{},
			Excess: r.excess(), Least: moves,
		}
		for zone, pods := range r.zones {
			row.Pods[zone] = pods.count()
			if r.table.Above(zone) > 0 {
				for why, n := range pods.stay {
					out.Stay[why] += n
				}
			}
		}
		out.Excess += row.Excess
		out.Rules = append(out.Rules, row)
	}
	for _, moves := range least {
		out.Least += moves
	}
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](all) {
		out.Missing += max(0, r.Status.Slots.Desired-r.Status.Slots.Held)
	}
	return out
}

// bySet returns the excess of each set of rules, of those that no selected pod carries too.
func (s *Standing) bySet() map[string]int64 {
	out := map[string]int64{}
	for _, r := range s.rules {
		out[r.set] += r.excess()
	}
	return out
}

// WhyStays says why a pod of the copy is not moved; empty if it may be. It may be called until the copy is closed.
func (s *Standing) WhyStays(pod *v1.Pod) string { return s.stays(pod) }

// ExcessOf is how many pods are more than the rules of a workload allow.
func (s *Standing) ExcessOf(workload string) (pods int64) {
	for i := range s.Rules {
		if slices.Contains(s.Rules[i].Workloads, workload) {
			pods += s.Rules[i].Excess
		}
	}
	return pods
}

// carries reports whether a pod of a zone carries the rule.
func (r *rule) carries(pod *v1.Pod, zone string) bool {
	inZone := r.zones[zone]
	return inZone != nil && slices.ContainsFunc(inZone.movable, func(p *census.Pod) bool { return p.UID == pod.UID })
}
