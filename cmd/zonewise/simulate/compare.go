package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/census"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/cmd/zonewise/status"
)

// Zone says what a zone has before and after. A lost zone has nothing after.
type Zone struct {
	Name   string      `json:"name"`
	Lost   bool        `json:"lost,omitempty"`
	Before status.Zone `json:"before"`
	After  status.Zone `json:"after,omitzero"`
}

// Promise says what happens to a promise of the cluster, and whether it is broken.
type Promise struct {
	// Kind is one of Failures: a ZoneSpreadPolicy, a PodDisruptionBudget, a gang or a ZoneReservation.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Before and After count pods of a policy, healthy pods of a budget, bound members of a gang, or unused slots of a reservation
	// (places for pods, if it holds amounts), at the start and in the end. Wanted is how many of them, or slots in all, there should be.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	Wanted int64 `json:"wanted"`
	Broken bool  `json:"broken"`
	// Words say the same and more in a line.
	Words string `json:"message"`
}

func (p *play) compareZones(before, after *census.Census) {
	now := map[string]status.Zone{}
	for _, zone := range status.ZonesOf(after) {
		now[zone.Name] = zone
	}
	p.result.Zones = []Zone{}
	for _, was := range status.ZonesOf(before) {
		is, there := now[was.Name]
		p.result.Zones = append(p.result.Zones, Zone{Name: was.Name, Lost: !there, Before: was, After: is})
	}
}

// byName returns the objects of a kind by "namespace/name", or by name if they have no namespace.
func byName[T client.Object](c *census.Census) map[string]T {
	out := map[string]T{}
	for _, obj := range snapshot.List[T](c.Snapshot) {
		out[strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/")] = obj
	}
	return out
}

func (p *play) add(promise Promise) { p.result.Promises = append(p.result.Promises, promise) }

// comparePolicies goes by the statuses of the policies. One is broken if it was obeyed and feasible before, and is not afterwards.
func (p *play) comparePolicies(before, after *census.Census) {
	bad := func(state string) bool {
		return state == status.Infeasible || state == status.Violated || state == status.Waiting
	}
	was, is := byName[*v1alpha1.ZoneSpreadPolicy](before), byName[*v1alpha1.ZoneSpreadPolicy](after)
	for _, name := range slices.Sorted(maps.Keys(is)) {
		old, now := status.Policy{}, status.PolicyOf(is[name])
		if was[name] != nil {
			old = status.PolicyOf(was[name])
		}
		message := ""
		if bad(now.State) && now.Message != "" {
			message = ": " + now.Message
		}
		if now.Pods != old.Pods || message != "" {
			p.add(Promise{
				Kind: FailPolicy, Name: name, Before: old.Pods, After: now.Pods, Wanted: now.Replicas, Broken: bad(now.State) && !bad(old.State),
				Words: fmt.Sprintf("%d -> %d pods, skew %d of %d%s", old.Pods, now.Pods, now.Skew, now.MaxSkew, message),
			})
		}
	}
}

// compareBudgets goes by the healthy pods: left are those after the loss of the nodes, before displaced pods have found others.
func (p *play) compareBudgets(before *census.Census, left map[string]int64, after *census.Census) {
	was, is := byName[*policyv1.PodDisruptionBudget](before), byName[*policyv1.PodDisruptionBudget](after)
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if was[name] == nil {
			continue
		}
		b := Promise{
			Kind: FailBudget, Name: name, Wanted: int64(is[name].Status.DesiredHealthy),
			Before: int64(was[name].Status.CurrentHealthy), After: int64(is[name].Status.CurrentHealthy),
		}
		lowest := min(left[name], b.After)
		b.Broken = lowest < b.Wanted && b.Before >= b.Wanted
		b.Words = fmt.Sprintf("%d -> %d healthy at once, %d wanted, %d in the end", b.Before, left[name], b.Wanted, b.After)
		if lowest != b.Before {
			p.add(b)
		}
	}
}

// compareGangs looks at the gangs that lost members, or were added. Members that have succeeded count for as long as their
// controller has live ones.
func (p *play) compareGangs(before, after *census.Census) {
	touched := map[string]bool{}
	if p.loss != nil {
		for _, pod := range p.loss.Orphans {
			touched[census.GangOf(pod)] = true
		}
	}
	delete(touched, "") // of pods in no gang
	for _, pod := range after.Pods {
		if gang := census.GangOf(pod.Pod); gang != "" && p.moved[pod.UID] {
			touched[gang] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(touched)) {
		was, is := 0, after.Gang(key)
		if is == nil { // neither a member nor its PodGroup is left
			is = &census.Gang{}
		}
		if gang := before.Gang(key); gang != nil {
			was = gang.Bound + gang.Done
		}
		now, needs := is.Bound+is.Done, is.MinMember()
		p.add(Promise{
			Kind: FailGang, Name: key, Before: int64(was), After: int64(now), Wanted: int64(needs), Broken: now < needs || is.Group == nil,
			Words: fmt.Sprintf("%d -> %d members bound, %d needed", was, now, needs),
		})
	}
}

// compareReservations goes by the statuses of the reservations. One is broken if unused slots of lost nodes find no other place.
func (p *play) compareReservations(before, after *census.Census) {
	was, is := byName[*v1alpha1.ZoneReservation](before), byName[*v1alpha1.ZoneReservation](after)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if is[name] == nil || was[name].Status.Slots.Held == 0 {
			continue
		}
		lost := int64(0)
		for _, zone := range was[name].Status.Zones {
			for _, node := range zone.Nodes {
				if after.Node(node.Name) == nil {
					lost += node.Slots - node.Used
				}
			}
		}
		for _, n := range was[name].Spec.Nodes {
			if after.Node(n.Name) == nil {
				lost += int64(max(1, n.Pods))
			}
		}
		old, now := was[name].Status.Slots, is[name].Status.Slots
		r := Promise{
			Kind: FailReservation, Name: name, Before: old.Held - old.Used, After: now.Held - now.Used, Wanted: now.Desired,
			Broken: lost > 0 && now.Held < old.Held,
		}
		r.Words = fmt.Sprintf("%d -> %d unused slots: %d lost; %d of %d held, %d used", r.Before, r.After, lost, now.Held, now.Desired, now.Used)
		p.add(r)
	}
}

// The things that can fail.
const (
	FailPending     = "pending"
	FailPolicy      = "policy"
	FailBudget      = "budget"
	FailGang        = "gang"
	FailReservation = "reservation"
)

// Failures returns all of them, and those that count by default.
var (
	Failures        = []string{FailPending, FailPolicy, FailBudget, FailGang, FailReservation}
	DefaultFailures = []string{FailPending, FailPolicy, FailBudget, FailGang}
)

// Failed returns which of the given failures happened.
func (r *Result) Failed(count []string) []string {
	return slices.DeleteFunc(slices.Clone(count), func(failure string) bool {
		broken := slices.ContainsFunc(r.Promises, func(p Promise) bool { return p.Broken && p.Kind == failure })
		return !broken && (failure != FailPending || r.Pending+r.Orphans == 0)
	})
}
