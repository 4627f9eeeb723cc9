package rebalance

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// Rules are the rules that some selected pod carries, in an order that copies have in common.
	Rules []RuleStanding `json:"rules"`
	// Stay counts the pods that may not be moved, in zones with more pods than a rule allows, by why they stay.
	Stay map[string]int `json:"stay,omitempty"`

	census  *census.Census
	stayers *stayers
	rules   []*rule
	zones   map[string]ZoneState
}

// RuleStanding is one rule with the pods that carry it.
type RuleStanding struct {
	Rule      string   `json:"rule"`
	Workloads []string `json:"workloads"`
	// Pods are those that carry the rule, by zone.
	Pods map[string]int `json:"pods"`
	// Excess is how many pods are more than the rule allows.
	Excess int64 `json:"excess"`
}

// StandingOf reads a copy that need not be at rest. Of the options it uses Selects, Stays and EvictLocalStorage.
func StandingOf(s *sim.Sim, options Options) Standing {
	all := snapshot.New(s.Now())
	all.Add(s.Objects()...)
	return standingOf(census.Take(all), s, options)
}

// Read is StandingOf for a cluster as it was read. It leaves out why pods stay that only a copy knows: those of other
// schedulers, and those that no controller replaces.
func Read(c *census.Census, options Options) Standing { return standingOf(c, nil, options) }

func standingOf(c *census.Census, copied *sim.Sim, options Options) Standing {
	stayers := newStayers(c, copied, options)
	out := Standing{
		Rules: []RuleStanding{}, Stay: map[string]int{},
		census: c, stayers: stayers, rules: rulesOf(c, stayers.why, options.selects), zones: zoneStates(c),
	}
	for _, r := range out.rules {
		if !r.selected {
			continue
		}
		row := RuleStanding{
			Rule: r.name, Workloads: slices.Sorted(maps.Keys(r.workloads)), Pods: map[string]int{}, Excess: r.excess(),
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
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](c.Snapshot) {
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

// WhyStays says why a pod is not moved; empty if it may be. It may be called until the copy is closed.
func (s *Standing) WhyStays(pod *v1.Pod) string { return s.stayers.why(pod) }

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

// WhyNotMoved says why pods are not to be moved out of zones; empty if all of them are one too many where they are, and
// may be moved. Each request to evict a pod is asked for only after that, of the cluster as it is read then.
func (s *Standing) WhyNotMoved(moves []Move) string {
	for i := range moves {
		m := &moves[i]
		pod := s.census.FindPod(m.Namespace, m.Name)
		switch {
		case pod == nil || pod.UID != m.UID:
			return fmt.Sprintf("pod %s/%s is gone", m.Namespace, m.Name)
		case pod.On == nil || pod.On.Zone != m.From:
			return fmt.Sprintf("pod %s/%s is not in zone %s", m.Namespace, m.Name, m.From)
		}
		if why := s.stayers.why(pod.Pod); why != "" {
			return fmt.Sprintf("pod %s/%s %s", m.Namespace, m.Name, why)
		}
		if !slices.ContainsFunc(s.rules, func(r *rule) bool {
			return r.selected && r.carries(pod.Pod, m.From) && r.table.Above(m.From) > 0
		}) {
			return fmt.Sprintf("pod %s/%s is not one too many in zone %s any more", m.Namespace, m.Name, m.From)
		}
	}
	return ""
}

// MayMove reports whether there is a pod to try to move: one too many in its zone that nothing keeps there, neither
// Stays of the options nor, if it is to be tried now, TryLast.
func (s *Standing) MayMove(options Options) bool {
	for _, r := range s.rules {
		for zone, pods := range r.zones {
			if r.selected && r.table.Above(zone) > 0 && canMove(r.table, zone, r.takes) &&
				slices.ContainsFunc(pods.movable, func(pod *census.Pod) bool {
					return options.stays(pod.Pod) == "" && !options.triedLast(s.census.Workload(pod.Pod), zone)
				}) {
				return true
			}
		}
	}
	return false
}

// Pod returns a pod as it was read; nil if it is not there, or terminates.
func (s *Standing) Pod(namespace, name string, uid types.UID) *v1.Pod {
	if pod := s.census.FindPod(namespace, name); pod != nil && pod.UID == uid {
		return pod.Pod
	}
	return nil
}
