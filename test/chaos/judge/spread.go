package judge

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/chaos/history"
)

// spread looks at the pods of one selector in a namespace around a bind.
type spread struct {
	x        *history.Index
	bind     *history.Life
	lives    []*history.Life // that match
	from, to time.Time       // what changed between is not certainly known
}

// knownFrom is before when a change must have been known to the scheduler that bound a pod: when the change was older
// than Known, or than the process, which has listed everything at its start.
func knownFrom(x *history.Index, bind *history.Life) time.Time {
	from := bind.Bound.Time.Add(-Known)
	if started := x.Started[bind.Writer]; started.After(from) {
		return started
	}
	return from
}

func newSpread(x *history.Index, bind *history.Life, selector *metav1.LabelSelector) *spread {
	s := &spread{x: x, bind: bind, from: knownFrom(x, bind), to: bind.Bound.Time.Add(Known)}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		matches = labels.Nothing()
	}
	for _, l := range x.Lives {
		if l.Pod.Namespace == bind.Pod.Namespace && matches.Matches(labels.Set(l.Pod.Labels)) {
			s.lives = append(s.lives, l)
		}
	}
	return s
}

// zone is the one that a node has been in for as long as it takes to know it; false means that it was not always there,
// or not always as it is.
func (s *spread) zone(node string) (string, bool) {
	n, ok := history.Throughout(s.x.Nodes[node], s.from, s.bind.Bound.Time)
	if !ok {
		return "", false
	}
	return history.Zone(n), true
}

// ever reports whether a node may have been taken for one of the zone.
func (s *spread) ever(node, zone string) bool {
	for _, span := range history.During(s.x.Nodes[node], s.from, s.to) {
		if history.Zone(span.Object) == zone {
			return true
		}
	}
	return false
}

// least is how many pods the scheduler that bound the pod must have known to be in the zone, with the pod.
func (s *spread) least(zone string) int {
	count := 1
	for _, l := range s.lives {
		if l == s.bind || l.Bound.Revision > s.bind.Bound.Revision || l.Ended.Time.Before(s.bind.Bound.Time) {
			continue
		}
		own := l.Writer != "" && l.Writer == s.bind.Writer
		if !own && l.Bound.Time.After(s.from) {
			continue
		}
		if z, known := s.zone(l.Node()); known && z == zone {
			count++
		}
	}
	return count
}

// most is how many pods it may have taken to be in the zone: bound ones, those whose end it did not know yet, and those
// that it had assumed there.
func (s *spread) most(zone string, disturbed bool) int {
	count := 0
	for _, l := range s.lives {
		if l == s.bind || l.Ended.Time.Before(s.from) || l.Created.Time.After(s.bind.Bound.Time) {
			continue
		}
		waiting := l.Bound.Time.After(s.bind.Bound.Time)
		switch {
		case !l.Bound.Time.After(s.to) && s.ever(l.Node(), zone), waiting && (disturbed || s.attempted(l, zone)):
			count++
		}
	}
	return count
}

// attempted reports whether the bind of a pod to the zone was refused.
func (s *spread) attempted(l *history.Life, zone string) bool {
	for node, attempts := range s.x.Attempts {
		for _, q := range attempts {
			if q.UID == l.Pod.UID && !q.Answered.Before(s.from) && !q.Received.After(s.to) && s.ever(node, zone) {
				return true
			}
		}
	}
	return false
}

// caps: no bind takes a zone over a cap of a policy that had been there for a while.
func caps(x *history.Index, v *Verdict) {
	for _, l := range x.Lives {
		if l.Bound == history.Never {
			continue
		}
		for _, spans := range x.Policies {
			policy, known := history.Throughout(spans, knownFrom(x, l), l.Bound.Time)
			if !known || policy.Namespace != l.Pod.Namespace || policy.Spec.WhenUnsatisfiable == v1alpha1.ScheduleAnyway || !selects(&policy.Spec.PodSelector, l.Pod) {
				continue
			}
			s := newSpread(x, l, &policy.Spec.PodSelector)
			zone, known := s.zone(l.Node())
			if !known {
				continue
			}
			limit, capped := capOf(policy, zone)
			if !capped {
				continue
			}
			v.Judged++
			if least := s.least(zone); least > limit {
				v.findf(l.Bound, "pod %s is number %d in zone %s, policy %s allows %d, bound by %q", l.Pod.Name, least, zone, policy.Name, limit, l.Writer)
			}
		}
	}
}

// capOf is the most pods of a policy in a zone, as far as it is a number; percentages are not judged.
func capOf(policy *v1alpha1.ZoneSpreadPolicy, zone string) (limit int, capped bool) {
	take := func(n int) {
		if !capped || n < limit {
			limit, capped = n, true
		}
	}
	if most := policy.Spec.MaxPerZone; most != nil && most.Type == intstr.Int {
		take(most.IntValue())
	}
	for _, z := range policy.Spec.Zones {
		if z.Name == zone && z.MaxPods != nil {
			take(int(*z.MaxPods))
		}
	}
	return limit, capped
}

func selects(selector *metav1.LabelSelector, pod *v1.Pod) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(pod.Labels))
}

// hard are the constraints of a pod over zones that must be kept.
func hard(pod *v1.Pod) (out []v1.TopologySpreadConstraint) {
	for _, c := range pod.Spec.TopologySpreadConstraints {
		if c.TopologyKey == v1.LabelTopologyZone && c.WhenUnsatisfiable == v1.DoNotSchedule {
			out = append(out, c)
		}
	}
	return out
}

// maxSkews: no bind takes a zone further ahead of the emptiest one than a hard constraint of the pod allows. What a
// scheduler had assumed and could not bind, because it was killed or the API server was not there, is in no record:
// near to such a fault each waiting pod may have been assumed anywhere.
func maxSkews(x *history.Index, v *Verdict) {
	for _, l := range x.Lives {
		if l.Bound == history.Never {
			continue
		}
		for _, c := range hard(l.Pod) {
			s := newSpread(x, l, c.LabelSelector)
			zone, known := s.zone(l.Node())
			if !known {
				continue
			}
			disturbed := x.Disturbed(s.from, s.to)
			least := s.least(zone)
			smallest, where := least-1, zone
			for _, other := range s.zones() {
				if most := s.most(other, disturbed); other != zone && most < smallest {
					smallest, where = most, other
				}
			}
			v.Judged++
			if least-smallest > int(c.MaxSkew) {
				v.findf(l.Bound, "pod %s is number %d in zone %s, zone %s has %d, maxSkew is %d, bound by %q", l.Pod.Name, least, zone, where, smallest, c.MaxSkew, l.Writer)
			}
		}
	}
}

// zones are those with a node that was there, and unchanged, for as long as it takes to know it.
func (s *spread) zones() []string {
	seen := map[string]bool{}
	var out []string
	for node := range s.x.Nodes {
		if z, known := s.zone(node); known && !seen[z] {
			seen[z] = true
			out = append(out, z)
		}
	}
	return out
}
