package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/apis/v1alpha1"
)

// MaxStatusZones is how many zones a status lists. With a topology key that has more values (a hostname), zones
// with something to remember come first; the figures still cover all.
const MaxStatusZones = 1000

// Observation is what a status is made from, besides the policy and its machine.
type Observation struct {
	// Revisions are the placed pods (live, bound or assumed) that the policy selects, by Policy.Revision and
	// zone. A policy without matchLabelKeys has the one revision "".
	Revisions map[string]map[string]int64
	// Demand is how many pods are wanted.
	Demand Demand
	// Waiting is how many pods were refused by this policy when they were last tried, whatever else refused
	// them, and wait still.
	Waiting int64
}

// Rejected is the status of a policy that Compile refuses: it is not applied to any pod. What the previous status
// remembers about zones is kept, for the time when the policy is mended.
func Rejected(obj *v1alpha1.ZoneSpreadPolicy, errs field.ErrorList, now time.Time) v1alpha1.ZoneSpreadPolicyStatus {
	status := *obj.Status.DeepCopy()
	status.ObservedGeneration = obj.Generation
	set := conditions(&status, obj.Generation, now)
	set(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalid, oneLine(errs))
	set(v1alpha1.ConditionSatisfied, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, "the policy is not applied")
	set(v1alpha1.ConditionInfeasible, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, "the policy is not applied")
	return status
}

// Status computes the status of a policy. previous is only looked at for the times at which conditions changed, so
// that equal observations give equal statuses. The result shares nothing with it.
func (p *Policy) Status(m *Machine, o Observation, previous v1alpha1.ZoneSpreadPolicyStatus, now time.Time) v1alpha1.ZoneSpreadPolicyStatus {
	status := v1alpha1.ZoneSpreadPolicyStatus{
		ObservedGeneration: p.generation,
		Replicas:           p.Replicas(o.Demand, nil),
		Zones:              m.Export(now),
		Conditions:         slices.Clone(previous.Conditions),
	}
	facts := p.facts(m, o, &status, now)
	for i, want := range desired(status.Replicas, facts) {
		status.Zones[i].Pods, status.Zones[i].Desired = facts[i].pods, want
		status.Pods += facts[i].pods
	}

	set := conditions(&status, p.generation, now)
	var empty []string
	for i := range facts {
		if facts[i].empty {
			empty = append(empty, facts[i].name)
		}
	}
	if len(empty) > 0 {
		set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonZonesWithoutNodes,
			"spec.zones: "+quoted(empty)+" never had a node with that value of "+p.topologyKey)
	} else {
		set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the scheduler applies the policy")
	}

	skew, reason, message := p.satisfied(facts, o, status.Replicas)
	status.Skew = skew
	if reason != "" {
		set(v1alpha1.ConditionSatisfied, metav1.ConditionFalse, reason, message)
	} else {
		set(v1alpha1.ConditionSatisfied, metav1.ConditionTrue, v1alpha1.ReasonSatisfied, "all placed pods obey the policy")
	}

	switch reason, message := p.feasible(status.Replicas, facts, p.replacesFirst(o.Demand)); {
	case reason != "":
		set(v1alpha1.ConditionInfeasible, metav1.ConditionTrue, reason, message)
	case message != "":
		set(v1alpha1.ConditionInfeasible, metav1.ConditionFalse, v1alpha1.ReasonReplicasNotYetObserved, message)
	default:
		set(v1alpha1.ConditionInfeasible, metav1.ConditionFalse, v1alpha1.ReasonFeasible, "the zones that exist can hold all replicas")
	}
	trimZones(&status)
	return status
}

// facts joins what the machine knows with the counts; facts and status.Zones are parallel. Zones that the machine
// does not know have had no node for a day, and no pods.
func (p *Policy) facts(m *Machine, o Observation, status *v1alpha1.ZoneSpreadPolicyStatus, now time.Time) []zoneFacts {
	pods := map[string]int64{}
	for _, zones := range o.Revisions {
		for zone, n := range zones {
			pods[zone] += n
		}
	}
	facts := make([]zoneFacts, 0, len(status.Zones))
	for i := range status.Zones {
		name := status.Zones[i].Name
		z := m.zones[name]
		weight, maxPods := p.weightOf(name)
		limit, _ := p.capOf(maxPods, status.Replicas)
		facts = append(facts, zoneFacts{name: name, weight: weight, cap: limit, empty: !z.hadNodes, part: m.partOfAny(z, now), down: m.down(z, now), pods: pods[name]})
	}
	return facts
}

// satisfied checks the placement as it is, revision by revision, and returns the largest weighted skew. The
// reason is empty when everything is as the policy wants it.
func (p *Policy) satisfied(facts []zoneFacts, o Observation, replicas int64) (skew int64, reason, message string) {
	var overCap, forbidden, ahead string
	revisions := o.Revisions
	if len(revisions) == 0 {
		revisions = map[string]map[string]int64{"": nil}
	}
	view := View{}
	for i := range facts {
		view[facts[i].name] = facts[i].part
	}
	// In order, so that the message is the same each time.
	for _, revision := range slices.Sorted(maps.Keys(revisions)) {
		pods := revisions[revision]
		q := Question{Replicas: replicas, View: view, Domains: make([]Domain, len(facts))}
		for i := range facts {
			n := pods[facts[i].name]
			q.Domains[i] = Domain{Name: facts[i].name, Pods: n, AllPods: n, Eligible: !facts[i].empty}
		}
		t := p.Judge(q)
		for i := range facts {
			z := t.lookup(facts[i].name)
			switch {
			case z.weight == 0 && z.pods > 0:
				forbidden = cmp.Or(forbidden, fmt.Sprintf("zone %s has weight 0 and holds %d pods", z.name, z.pods))
			case z.weight > 0 && z.pods > z.cap:
				overCap = cmp.Or(overCap, fmt.Sprintf("zone %s holds %d pods of one revision, cap %d (%s)", z.name, z.pods, z.cap, z.capRule.field()))
			}
			if s := t.skewOf(z); s > skew {
				skew = s
				ahead = fmt.Sprintf("zone %s is %d pods ahead of its share, maxSkew %d", z.name, s, p.maxSkew)
			}
		}
	}
	switch {
	case forbidden != "":
		return skew, v1alpha1.ReasonForbidden, forbidden
	case overCap != "":
		return skew, v1alpha1.ReasonCapExceeded, overCap
	case skew > p.maxSkew:
		return skew, v1alpha1.ReasonSkewExceeded, ahead
	case o.Waiting > 0:
		return skew, v1alpha1.ReasonPodsWaiting, fmt.Sprintf("%d pods wait because of the policy", o.Waiting)
	}
	return skew, "", ""
}

// skewOf is by how many pods the zone is ahead of its share, rounded up, so that it is above maxSkew exactly when
// the rule of Judge is broken. Zones that the minimum does not bind count 0.
func (t *Table) skewOf(z *zoneRow) int64 {
	if z.weight == 0 || !z.member || z.part == Unavailable || t.smallest < 0 && !t.shortOfZone {
		return 0
	}
	ahead := z.pods*t.leastWeight - z.weight*t.leastPods
	return max(0, (ahead+t.leastWeight-1)/t.leastWeight)
}

// trimZones keeps the status within what the CustomResourceDefinition admits.
func trimZones(status *v1alpha1.ZoneSpreadPolicyStatus) {
	if len(status.Zones) <= MaxStatusZones {
		return
	}
	slices.SortStableFunc(status.Zones, func(a, b v1alpha1.ZoneStatus) int {
		return cmp.Compare(boolRank(a.Failover != nil), boolRank(b.Failover != nil))
	})
	status.Zones = slices.Clip(status.Zones[:MaxStatusZones])
	slices.SortFunc(status.Zones, func(a, b v1alpha1.ZoneStatus) int { return strings.Compare(a.Name, b.Name) })
}

func boolRank(b bool) int {
	if b {
		return 0
	}
	return 1
}

// conditions returns a setter that keeps the time of a condition's last change.
func conditions(status *v1alpha1.ZoneSpreadPolicyStatus, generation int64, now time.Time) func(kind string, s metav1.ConditionStatus, reason, message string) {
	return func(kind string, s metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: s, Reason: reason, Message: message,
			ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
}

func oneLine(errs field.ErrorList) string {
	texts := make([]string, len(errs))
	for i := range errs {
		texts[i] = errs[i].Error()
	}
	return strings.Join(texts, "; ")
}
