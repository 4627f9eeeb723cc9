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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"zonewise.dev/apis/v1alpha1"
)

// MaxStatusZones is how many zones a status lists. With a topology key that has more values, zones with something to
// remember come first; the figures still cover all.
const MaxStatusZones = 1000

// Observation is what a status is made from, besides the policy and its zones.
type Observation struct {
	// Tally has the live pods that the policy selects.
	Tally *Tally
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
	set(v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalid, oneLine(errs))
	set(v1alpha1.ConditionSatisfied, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, "the policy is not applied")
	set(v1alpha1.ConditionInfeasible, metav1.ConditionUnknown, v1alpha1.ReasonInvalid, "the policy is not applied")
	return status
}

// Status computes the status of a policy. zones is what Zones.Export gave, which the status takes over. previous is
// only used for the times at which conditions changed, so that equal observations give equal statuses.
func (p *Policy) Status(
	zs *Zones, o Observation, previous v1alpha1.ZoneSpreadPolicyStatus, now time.Time,
) v1alpha1.ZoneSpreadPolicyStatus {
	status := v1alpha1.ZoneSpreadPolicyStatus{
		ObservedGeneration: p.generation,
		Zones:              zs.Export(now),
		Conditions:         slices.Clone(previous.Conditions),
	}
	placed := o.Tally.Zones()
	facts := p.facts(zs, placed, &status, now)
	demands := p.demands(o.Tally)
	want := make([]int64, len(facts))
	var reason, message string
	for i := range demands {
		d := &demands[i]
		status.Replicas += d.wanted()
		held := placed
		if p.ByOwner() {
			held = o.Tally.heldBy(d.uid)
		}
		p.desired(d, factsFor(facts, zs, d, now), held, want)
		if reason == "" {
			reason, message = p.feasible(d, facts)
		}
	}
	for i := range facts {
		status.Zones[i].Pods, status.Zones[i].Desired = facts[i].pods, want[i]
		status.Pods += facts[i].pods
	}

	set := conditions(&status, p.generation, now)
	accepted, text := p.accepted(facts, o.Tally)
	set(v1alpha1.ConditionAccepted, metav1.ConditionTrue, accepted, text)
	set(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "the scheduler applies the policy")

	switch ordered := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionScaleDownOrdered); {
	case !p.keepSpread:
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionScaleDownOrdered)
	case ordered == nil:
		set(v1alpha1.ConditionScaleDownOrdered, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved,
			"no controller that runs with --deletion-costs has looked at the policy")
	}

	skew, broken, text := p.satisfied(zs, facts, o.Tally, demands, now)
	if broken == "" && o.Waiting > 0 {
		broken, text = v1alpha1.ReasonPodsWaiting, fmt.Sprintf("%d pods wait because of the policy", o.Waiting)
	}
	status.Skew = skew
	if broken != "" {
		set(v1alpha1.ConditionSatisfied, metav1.ConditionFalse, broken, text)
	} else {
		set(v1alpha1.ConditionSatisfied, metav1.ConditionTrue, v1alpha1.ReasonSatisfied,
			"all placed pods obey the policy")
	}

	switch {
	case reason != "":
		set(v1alpha1.ConditionInfeasible, metav1.ConditionTrue, reason, message)
	case status.Replicas == 0:
		set(v1alpha1.ConditionInfeasible, metav1.ConditionFalse, v1alpha1.ReasonReplicasNotYetObserved,
			"there are no replicas to place")
	default:
		set(v1alpha1.ConditionInfeasible, metav1.ConditionFalse, v1alpha1.ReasonFeasible,
			"the zones that exist can hold all replicas")
	}
	trimZones(&status)
	return status
}

// facts joins what is known of the zones with the counts; facts and status.Zones are parallel. Zones that are not known
// have had no node for a day, and no pods.
func (p *Policy) facts(
	zs *Zones, placed map[string]int64, status *v1alpha1.ZoneSpreadPolicyStatus, now time.Time,
) []zoneFacts {
	facts := make([]zoneFacts, 0, len(status.Zones))
	for i := range status.Zones {
		name := status.Zones[i].Name
		z := zs.zones[name]
		weight, maxPods := p.weightOf(name)
		facts = append(facts, zoneFacts{
			name: name, weight: weight, maxPods: maxPods, empty: !z.opened,
			availability: zs.worst(name, z, now), pods: placed[name],
		})
	}
	return facts
}

// factsFor returns the facts as they are for one demand: the availability of the zones for its workload, and only zones
// that its pods may use.
func factsFor(facts []zoneFacts, zs *Zones, d *demand, now time.Time) []zoneFacts {
	own := slices.Clone(facts)
	availability := zs.For(now, d.uid)
	for i := range own {
		own[i].empty = own[i].empty || d.barred[own[i].name]
		if d.uid != "" {
			own[i].availability = availability[own[i].name]
		}
	}
	return own
}

// demands returns the replicas to place: of each workload with spec.replicas Owner, otherwise of all together. There is
// at least one.
func (p *Policy) demands(t *Tally) []demand {
	if !p.ByOwner() {
		all := demand{replicas: p.replicas.number, live: t.live.count(), barred: t.barred()}
		if p.replicas.matching {
			all.replicas = all.live
		}
		return []demand{all}
	}
	var demands []demand
	for uid, w := range t.workloads {
		d := demand{uid: uid, name: cmp.Or(w.Name, "pods without a known workload"), live: w.live, barred: w.barred}
		if w.Known {
			// A workload that wants none has no cap to break.
			d.replicas, d.live = w.Replicas, 0
		}
		demands = append(demands, d)
	}
	slices.SortFunc(demands,
		func(a, b demand) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.uid, b.uid)) })
	if len(demands) == 0 {
		demands = append(demands, demand{})
	}
	if len(demands) == 1 {
		demands[0].name = ""
	}
	return demands
}

// accepted is the reason and the message of a policy that is applied.
func (p *Policy) accepted(facts []zoneFacts, t *Tally) (reason, message string) {
	var empty, unknown []string
	for i := range facts {
		if facts[i].empty {
			empty = append(empty, facts[i].name)
		}
	}
	if p.ScalesCaps() && p.ByOwner() {
		for uid, w := range t.workloads {
			if uid != "" && !w.Known {
				unknown = append(unknown, w.Name)
			}
		}
		slices.Sort(unknown)
		if w := t.workloads[""]; w != nil {
			unknown = append(unknown, fmt.Sprintf("%d pods without a known workload", w.live))
		}
		if more := len(unknown) - 3; more > 0 {
			unknown = append(unknown[:3], fmt.Sprintf("%d more", more))
		}
	}
	switch {
	case len(empty) > 0:
		return v1alpha1.ReasonZonesWithoutNodes, "spec.zones: " + quoted(empty) +
			" never had an open node with that value of " + p.topologyKey
	case len(unknown) > 0:
		return v1alpha1.ReasonReplicasUnknown, "percentages and quorumSafe do not apply to pods " +
			"whose desired replicas are not known: " + strings.Join(unknown, ", ") + ". Let the scheduler read their workload, or set spec.replicas to Matching or a number"
	}
	return v1alpha1.ReasonAccepted, "the scheduler applies the policy"
}

// satisfied checks the placement as it is, revision by revision and workload by workload, and returns the largest
// weighted skew. The reason is empty when everything is as the policy wants it. A zone that some pod of a revision may
// not use, by its node affinity or tolerations, is compared with no other: that the pods could be spread better is
// claimed only where each of them could go.
func (p *Policy) satisfied(
	zs *Zones, facts []zoneFacts, t *Tally, demands []demand, now time.Time,
) (skew int64, reason, message string) {
	var overCap, forbidden, ahead string
	worst := ZoneAvailability{}
	for i := range facts {
		worst[facts[i].name] = facts[i].availability
		if facts[i].weight == 0 && facts[i].pods > 0 {
			forbidden = cmp.Or(forbidden,
				fmt.Sprintf("zone %s has weight 0 and holds %d pods", facts[i].name, facts[i].pods))
		}
	}
	replicas := map[types.UID]int64{}
	for i := range demands {
		replicas[demands[i].uid] = demands[i].replicas
	}
	replicasOf := func(workload types.UID) int64 {
		if !p.ByOwner() {
			return demands[0].replicas
		}
		return replicas[workload]
	}
	// In order, so that the message is the same each time.
	revisions := t.byRevision()
	for _, revision := range slices.Sorted(maps.Keys(revisions)) {
		pods := revisions[revision]
		zones := sumUp(pods.parts...)
		input := Input{Availability: worst, Domains: make([]Domain, len(facts)), Replicas: UnknownReplicas}
		if len(pods.parts) == 1 {
			input.Replicas = replicasOf(pods.workload)
			if pods.workload != "" {
				input.Availability = zs.For(now, pods.workload)
			}
		}
		for i := range facts {
			n := zones[facts[i].name]
			input.Domains[i] = Domain{Name: facts[i].name, Pods: n, Held: n, Eligible: !facts[i].empty && !pods.barred[facts[i].name]}
		}
		table := p.Evaluate(input)
		for i := range facts {
			if z := table.lookup(facts[i].name); table.skewOf(z) > skew {
				skew = table.skewOf(z)
				ahead = fmt.Sprintf("zone %s is %d pods ahead of its share, maxSkew %d", z.name, skew, p.maxSkew)
			}
		}
	}
	for workload, held := range t.capped {
		for i := range facts {
			limit, rule := p.capOf(facts[i].maxPods, replicasOf(workload))
			if n := held[facts[i].name]; facts[i].weight > 0 && n > limit {
				text := fmt.Sprintf("zone %s holds %d pods of one revision, cap %d (%s)", facts[i].name, n, limit,
					rule.field())
				if overCap == "" || text < overCap {
					overCap = text
				}
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
	}
	return skew, "", ""
}

// skewOf is by how many pods the zone is ahead of its share, rounded up, so that it is above maxSkew exactly when
// the rule of Evaluate is broken. Zones that the minimum does not bind count 0.
func (t *Table) skewOf(z *zoneRow) int64 {
	if z.weight == 0 || !z.counts || z.availability.unavailable() || t.smallest < 0 && !t.belowMin {
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
		return cmp.Compare(rank(&a), rank(&b))
	})
	status.Zones = slices.Clip(status.Zones[:MaxStatusZones])
	slices.SortFunc(status.Zones, func(a, b v1alpha1.ZoneStatus) int { return strings.Compare(a.Name, b.Name) })
}

// rank is 0 for a zone with facts that decisions rest on.
func rank(z *v1alpha1.ZoneStatus) int {
	if z.Since != nil || z.RecoveringSince != nil || len(z.Full) > 0 {
		return 0
	}
	return 1
}

// conditions returns a setter that keeps the time of a condition's last change.
func conditions(
	status *v1alpha1.ZoneSpreadPolicyStatus, generation int64, now time.Time,
) func(kind string, s metav1.ConditionStatus, reason, message string) {
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
