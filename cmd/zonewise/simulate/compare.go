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

// ZoneLoad says what a zone has before and after. A lost zone has nothing after.
type ZoneLoad struct {
	Name   string           `json:"name"`
	Lost   bool             `json:"lost,omitempty"`
	Before status.ZoneUsage `json:"before"`
	After  status.ZoneUsage `json:"after,omitzero"`
}

// Promise says what happens to a promise of the cluster, and whether it is broken.
type Promise struct {
	// Kind is one of Failures: a ZoneSpreadPolicy, a PodDisruptionBudget, a gang, a ZoneReservation, or a node that is
	// drained.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Before and After count pods of a policy, healthy pods of a budget, bound members of a gang, or unused slots of a
	// reservation, or pods on a drained node, at the start and in the end. Wanted is how many of them, or
	// slots in all, there should be.
	Before int64 `json:"before"`
	After  int64 `json:"after"`
	Wanted int64 `json:"wanted"`
	Broken bool  `json:"broken"`
	// Words say the same and more in a line.
	Words string `json:"message"`
}

func (p *scenarioRun) compareZones(before, after *census.Census) {
	now := map[string]status.ZoneUsage{}
	for _, zone := range status.ZonesOf(after) {
		now[zone.Name] = zone
	}
	p.result.Zones = []ZoneLoad{}
	for _, zone := range status.ZonesOf(before) {
		left, there := now[zone.Name]
		p.result.Zones = append(p.result.Zones, ZoneLoad{Name: zone.Name, Lost: !there, Before: zone, After: left})
	}
}

// objectsByName returns the objects of a kind by "namespace/name", or by name if they have no namespace.
func objectsByName[T client.Object](c *census.Census) map[string]T {
	out := map[string]T{}
	for _, obj := range snapshot.List[T](c.Snapshot) {
		out[strings.TrimPrefix(obj.GetNamespace()+"/"+obj.GetName(), "/")] = obj
	}
	return out
}

func (p *scenarioRun) addPromise(promise Promise) {
	p.result.Promises = append(p.result.Promises, promise)
}

// comparePolicies goes by the statuses of the policies. One is broken if it was obeyed and feasible before, and is not
// afterwards.
func (p *scenarioRun) comparePolicies(before, after *census.Census) {
	bad := func(state string) bool {
		return state == status.Infeasible || state == status.Violated || state == status.Waiting
	}
	first, last := objectsByName[*v1alpha1.ZoneSpreadPolicy](before), objectsByName[*v1alpha1.ZoneSpreadPolicy](after)
	for _, name := range slices.Sorted(maps.Keys(last)) {
		old, now := status.Policy{}, status.PolicyOf(last[name])
		if first[name] != nil {
			old = status.PolicyOf(first[name])
		}
		message := ""
		if bad(now.State) && now.Message != "" {
			message = ": " + now.Message
		}
		if now.Pods != old.Pods || message != "" {
			p.addPromise(Promise{
				Kind: FailPolicy, Name: name, Before: old.Pods, After: now.Pods, Wanted: now.Replicas, Broken: bad(now.State) && !bad(old.State),
				Words: fmt.Sprintf("%d -> %d pods, skew %d of %d%s", old.Pods, now.Pods, now.Skew, now.MaxSkew, message),
			})
		}
	}
}

// compareBudgets goes by the healthy pods: left are those after the loss of the nodes, before displaced pods have found
// others.
func (p *scenarioRun) compareBudgets(before *census.Census, left map[string]int64, after *census.Census) {
	first, last := objectsByName[*policyv1.PodDisruptionBudget](before), objectsByName[*policyv1.PodDisruptionBudget](after)
	for _, name := range slices.Sorted(maps.Keys(last)) {
		if first[name] == nil {
			continue
		}
		b := Promise{
			Kind: FailBudget, Name: name, Wanted: int64(last[name].Status.DesiredHealthy),
			Before: int64(first[name].Status.CurrentHealthy), After: int64(last[name].Status.CurrentHealthy),
		}
		lowest := min(left[name], b.After)
		b.Broken = lowest < b.Wanted && b.Before >= b.Wanted
		b.Words = fmt.Sprintf("%d -> %d healthy at once, %d wanted, %d in the end", b.Before, left[name], b.Wanted, b.After)
		if lowest != b.Before {
			p.addPromise(b)
		}
	}
}

// compareGangs looks at the gangs that lost members, or were added. Members that have succeeded count for as long as
// their controller has live ones.
func (p *scenarioRun) compareGangs(before, after *census.Census) {
	touched := map[string]bool{}
	if p.loss != nil {
		for _, pod := range p.loss.Orphans {
			touched[before.GangOf(pod)] = true
		}
	}
	delete(touched, "") // of pods in no gang
	for _, pod := range after.Pods {
		if gang := after.GangOf(pod.Pod); gang != "" && p.moved[pod.UID] {
			touched[gang] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(touched)) {
		bound, gang := 0, after.Gang(key)
		if gang == nil { // neither a member nor its PodGroup is left
			gang = &census.Gang{}
		}
		if earlier := before.Gang(key); earlier != nil {
			bound = earlier.Bound + earlier.Done
		}
		now, needs := gang.Bound+gang.Done, gang.MinMember()
		p.addPromise(Promise{
			Kind: FailGang, Name: key, Before: int64(bound), After: int64(now), Wanted: int64(needs), Broken: now < needs || !gang.Exists(),
			Words: fmt.Sprintf("%d -> %d members bound, %d needed", bound, now, needs),
		})
	}
}

// compareReservations goes by the statuses of the reservations. One is broken if unused slots of lost or drained nodes
// find no other place.
func (p *scenarioRun) compareReservations(before, after *census.Census) {
	first, last := objectsByName[*v1alpha1.ZoneReservation](before), objectsByName[*v1alpha1.ZoneReservation](after)
	for _, name := range slices.Sorted(maps.Keys(first)) {
		if last[name] == nil || first[name].Status.Slots.Held == 0 {
			continue
		}
		lost := int64(0)
		for _, zone := range first[name].Status.Zones {
			for _, node := range zone.Nodes {
				if n := after.FindNode(node.Name); n == nil || n.Spec.Unschedulable {
					lost += node.Slots - node.Used
				}
			}
		}
		old, now := first[name].Status.Slots, last[name].Status.Slots
		r := Promise{
			Kind: FailReservation, Name: name, Before: old.Held - old.Used, After: now.Held - now.Used, Wanted: now.Desired,
			Broken: lost > 0 && now.Held < old.Held,
		}
		r.Words = fmt.Sprintf("%d -> %d unused slots: %d lost; %d of %d held, %d used", r.Before, r.After, lost, now.Held, now.Desired, now.Used)
		p.addPromise(r)
	}
}

// The things that can fail.
const (
	FailPending     = "pending"
	FailPolicy      = "policy"
	FailBudget      = "budget"
	FailGang        = "gang"
	FailReservation = "reservation"
	FailBalance     = "balance"
	FailDrain       = "drain"
)

// Failures are all of them, DefaultFailures those that count by default. Budgets do not: they are about voluntary
// disruptions, which a loss is not and a drain keeps.
var (
	Failures        = []string{FailPending, FailPolicy, FailBudget, FailGang, FailDrain, FailReservation, FailBalance}
	DefaultFailures = []string{FailPending, FailPolicy, FailGang, FailDrain}
)

// Failed returns which of the given failures happened.
func (r *Result) Failed(count []string) []string {
	return slices.DeleteFunc(slices.Clone(count), func(failure string) bool {
		broken := slices.ContainsFunc(r.Promises, func(p Promise) bool { return p.Broken && p.Kind == failure })
		if failure == FailBalance && r.Rebalance != nil && (r.Rebalance.After.Excess > 0 || len(r.Rebalance.BrokenCertificates) > 0) {
			return false
		}
		waits := r.Pending + r.Orphans
		if r.NodesStay != nil {
			waits += r.NodesStay.Pending + r.NodesStay.Staying
		}
		return !broken && (failure != FailPending || waits == 0)
	})
}
