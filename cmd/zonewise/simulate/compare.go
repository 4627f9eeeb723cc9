package simulate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/census"
	"zonewise.dev/cmd/zonewise/snapshot"
	"zonewise.dev/cmd/zonewise/status"
)

// Zone says what a zone has before and after.
type Zone struct {
	Name                string `json:"name"`
	Lost                bool   `json:"lost,omitempty"`
	PodsBefore          int    `json:"podsBefore"`
	PodsAfter           int    `json:"podsAfter"`
	MilliCPUBefore      int64  `json:"milliCPURequestedBefore"`
	MilliCPUAfter       int64  `json:"milliCPURequestedAfter"`
	MilliCPUAllocatable int64  `json:"milliCPUAllocatable"`
	MemoryBefore        int64  `json:"memoryRequestedBefore"`
	MemoryAfter         int64  `json:"memoryRequestedAfter"`
	MemoryAllocatable   int64  `json:"memoryAllocatable"`
}

// Policy says what happens to a ZoneSpreadPolicy, by its status.
type Policy struct {
	Name    string `json:"name"`
	Pods    int64  `json:"pods"`
	Before  int64  `json:"podsBefore"`
	Skew    int64  `json:"skew"`
	MaxSkew int64  `json:"maxSkew"`
	// Broken policies were obeyed and feasible before, and are not afterwards.
	Broken  bool   `json:"broken"`
	Message string `json:"message,omitempty"`
}

// Budget says what happens to a PodDisruptionBudget.
type Budget struct {
	Name string `json:"name"`
	// Desired is how many pods must be healthy, Left how many are after the loss of the nodes, After how many are once
	// displaced pods have found nodes.
	Desired int  `json:"desired"`
	Before  int  `json:"before"`
	Left    int  `json:"left"`
	After   int  `json:"after"`
	Broken  bool `json:"broken"`
}

// Gang says what happens to a gang that lost members, or was added. Members that have succeeded count for as long as their
// controller has live ones.
type Gang struct {
	Name   string `json:"name"`
	Needs  int    `json:"needs"`
	Before int    `json:"before"`
	After  int    `json:"after"`
	Broken bool   `json:"broken"`
}

// Reservation says what happens to slots, or to places for pods if amounts are held, by the status.
type Reservation struct {
	Name   string `json:"name"`
	Before int64  `json:"unusedBefore"`
	After  int64  `json:"unusedAfter"`
	Used   int64  `json:"used"`
	// Lost counts unused slots on lost nodes; Held counts the slots of Desired that are held in the end, used or unused.
	Lost    int64 `json:"lost"`
	Held    int64 `json:"held"`
	Desired int64 `json:"desired"`
	Broken  bool  `json:"broken"`
}

func (p *play) compareZones(before, after *census.Census) {
	now := map[string]census.Room{}
	for _, room := range after.Rooms() {
		now[room.Zone] = room
	}
	p.result.Zones = []Zone{}
	for _, was := range before.Rooms() {
		is, there := now[was.Zone]
		p.result.Zones = append(p.result.Zones, Zone{
			Name: was.Zone, Lost: !there, PodsBefore: was.Pods, PodsAfter: is.Pods,
			MilliCPUBefore: was.Requested[corev1.ResourceCPU], MilliCPUAfter: is.Requested[corev1.ResourceCPU], MilliCPUAllocatable: is.Allocatable[corev1.ResourceCPU],
			MemoryBefore: was.Requested[corev1.ResourceMemory], MemoryAfter: is.Requested[corev1.ResourceMemory], MemoryAllocatable: is.Allocatable[corev1.ResourceMemory],
		})
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

func (p *play) comparePolicies(before, after *census.Census) {
	bad := func(state string) bool {
		return state == status.Infeasible || state == status.Violated || state == status.Waiting
	}
	was, is := byName[*v1alpha1.ZoneSpreadPolicy](before), byName[*v1alpha1.ZoneSpreadPolicy](after)
	p.result.Policies = []Policy{}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		old, now := status.Policy{}, status.PolicyOf(is[name])
		if was[name] != nil {
			old = status.PolicyOf(was[name])
		}
		row := Policy{Name: name, Pods: now.Pods, Before: old.Pods, Skew: now.Skew, MaxSkew: int64(now.MaxSkew)}
		if bad(now.State) {
			row.Message, row.Broken = now.Message, !bad(old.State)
		}
		if row.Pods != row.Before || row.Message != "" {
			p.result.Policies = append(p.result.Policies, row)
		}
	}
}

func (p *play) compareBudgets(before *census.Census, left map[string]int, after *census.Census) {
	was, is := byName[*policyv1.PodDisruptionBudget](before), byName[*policyv1.PodDisruptionBudget](after)
	p.result.Budgets = []Budget{}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if was[name] == nil {
			continue
		}
		now := &is[name].Status
		b := Budget{Name: name, Desired: int(now.DesiredHealthy), Before: int(was[name].Status.CurrentHealthy), Left: left[name], After: int(now.CurrentHealthy)}
		lowest := min(b.Left, b.After)
		if b.Broken = lowest < b.Desired && b.Before >= b.Desired; lowest != b.Before {
			p.result.Budgets = append(p.result.Budgets, b)
		}
	}
}

func (p *play) compareGangs(before, after *census.Census) {
	touched := map[string]bool{}
	for _, pod := range after.Pods {
		if gang := census.GangOf(pod.Pod); gang != "" && p.moved[pod.UID] {
			touched[gang] = true
		}
	}
	p.result.Gangs = []Gang{}
	for _, key := range after.Gangs() {
		if !touched[key] {
			continue
		}
		is := after.Gang(key)
		row := Gang{Name: key, Needs: is.MinMember(), After: is.Bound + is.Done}
		if was := before.Gang(key); was != nil {
			row.Before = was.Bound + was.Done
		}
		row.Broken = row.After < row.Needs || is.Group == nil
		p.result.Gangs = append(p.result.Gangs, row)
	}
}

func (p *play) compareReservations(before, after *census.Census) {
	was, is := byName[*v1alpha1.ZoneReservation](before), byName[*v1alpha1.ZoneReservation](after)
	p.result.Reservations = []Reservation{}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if is[name] == nil || was[name].Status.Slots.Held == 0 {
			continue
		}
		old, now := was[name].Status.Slots, is[name].Status.Slots
		row := Reservation{Name: name, Before: old.Held - old.Used, After: now.Held - now.Used, Used: now.Used, Held: now.Held, Desired: now.Desired}
		for _, zone := range was[name].Status.Zones {
			for _, node := range zone.Nodes {
				if after.Node(node.Name) == nil {
					row.Lost += node.Slots - node.Used
				}
			}
		}
		for _, n := range was[name].Spec.Nodes {
			if after.Node(n.Name) == nil {
				row.Lost += int64(max(1, n.Pods))
			}
		}
		row.Broken = row.Lost > 0 && row.Held < old.Held
		p.result.Reservations = append(p.result.Reservations, row)
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
	happened := map[string]bool{
		FailPending:     r.Pending > 0 || r.Orphans > 0,
		FailPolicy:      slices.ContainsFunc(r.Policies, func(p Policy) bool { return p.Broken }),
		FailBudget:      slices.ContainsFunc(r.Budgets, func(b Budget) bool { return b.Broken }),
		FailGang:        slices.ContainsFunc(r.Gangs, func(g Gang) bool { return g.Broken }),
		FailReservation: slices.ContainsFunc(r.Reservations, func(s Reservation) bool { return s.Broken }),
	}
	return slices.DeleteFunc(slices.Clone(count), func(failure string) bool { return !happened[failure] })
}
