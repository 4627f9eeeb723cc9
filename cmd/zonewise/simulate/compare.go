package simulate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

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

func (p *play) comparePolicies(before, after *census.Census) {
	bad := func(state string) bool {
		return state == status.Infeasible || state == status.Violated || state == status.Waiting
	}
	was := map[string]status.Policy{}
	for _, object := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](before.Snapshot) {
		was[object.Namespace+"/"+object.Name] = status.PolicyOf(object)
	}
	p.result.Policies = []Policy{}
	for _, object := range snapshot.List[*v1alpha1.ZoneSpreadPolicy](after.Snapshot) {
		is := status.PolicyOf(object)
		row := Policy{Name: is.Namespace + "/" + is.Name, Pods: is.Pods, Before: was[is.Namespace+"/"+is.Name].Pods, Skew: is.Skew, MaxSkew: int64(is.MaxSkew)}
		if bad(is.State) {
			row.Message, row.Broken = is.Message, !bad(was[row.Name].State)
		}
		if row.Pods != row.Before || row.Message != "" {
			p.result.Policies = append(p.result.Policies, row)
		}
	}
	slices.SortFunc(p.result.Policies, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
}

func (p *play) compareBudgets(before *census.Census, left map[string]int, after *census.Census) {
	was := map[string]*policyv1.PodDisruptionBudget{}
	for _, b := range snapshot.List[*policyv1.PodDisruptionBudget](before.Snapshot) {
		was[b.Namespace+"/"+b.Name] = b
	}
	p.result.Budgets = []Budget{}
	for _, object := range snapshot.List[*policyv1.PodDisruptionBudget](after.Snapshot) {
		name := object.Namespace + "/" + object.Name
		if was[name] == nil {
			continue
		}
		b := Budget{Name: name, Desired: int(object.Status.DesiredHealthy), Before: int(was[name].Status.CurrentHealthy), Left: left[name], After: int(object.Status.CurrentHealthy)}
		lowest := min(b.Left, b.After)
		if b.Broken = lowest < b.Desired && b.Before >= b.Desired; lowest != b.Before {
			p.result.Budgets = append(p.result.Budgets, b)
		}
	}
	slices.SortFunc(p.result.Budgets, func(a, b Budget) int { return strings.Compare(a.Name, b.Name) })
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
	is := map[string]*v1alpha1.ZoneReservation{}
	for _, r := range snapshot.List[*v1alpha1.ZoneReservation](after.Snapshot) {
		is[r.Name] = r
	}
	p.result.Reservations = []Reservation{}
	for _, was := range snapshot.List[*v1alpha1.ZoneReservation](before.Snapshot) {
		now := is[was.Name]
		if now == nil || was.Status.Slots.Held == 0 {
			continue
		}
		row := Reservation{
			Name: was.Name, Before: was.Status.Slots.Held - was.Status.Slots.Used, After: now.Status.Slots.Held - now.Status.Slots.Used,
			Used: now.Status.Slots.Used, Held: now.Status.Slots.Held, Desired: now.Status.Slots.Desired,
		}
		for _, zone := range was.Status.Zones {
			for _, node := range zone.Nodes {
				if after.Node(node.Name) == nil {
					row.Lost += node.Slots - node.Used
				}
			}
		}
		for i := range was.Spec.Nodes {
			if n := &was.Spec.Nodes[i]; after.Node(n.Name) == nil {
				row.Lost += int64(max(1, n.Pods))
			}
		}
		row.Broken = row.Lost > 0 && row.Held < was.Status.Slots.Held
		p.result.Reservations = append(p.result.Reservations, row)
	}
	slices.SortFunc(p.result.Reservations, func(a, b Reservation) int { return cmp.Compare(a.Name, b.Name) })
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
	var out []string
	for _, f := range count {
		bad := false
		switch f {
		case FailPending:
			bad = r.Pending > 0 || r.Orphans > 0
		case FailPolicy:
			bad = slices.ContainsFunc(r.Policies, func(p Policy) bool { return p.Broken })
		case FailBudget:
			bad = slices.ContainsFunc(r.Budgets, func(b Budget) bool { return b.Broken })
		case FailGang:
			bad = slices.ContainsFunc(r.Gangs, func(g Gang) bool { return g.Broken })
		case FailReservation:
			bad = slices.ContainsFunc(r.Reservations, func(s Reservation) bool { return s.Broken })
		}
		if bad {
			out = append(out, f)
		}
	}
	return out
}
