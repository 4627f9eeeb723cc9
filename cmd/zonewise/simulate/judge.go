package simulate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/world"
)

// Policy is what becomes of a ZoneSpreadPolicy.
type Policy struct {
	Name    string `json:"name"`
	Pods    int64  `json:"pods"`
	Before  int64  `json:"podsBefore"`
	Skew    int64  `json:"skew"`
	MaxSkew int64  `json:"maxSkew"`
	// Broken policies were obeyed before and would not be after.
	Broken  bool   `json:"broken"`
	Message string `json:"message,omitempty"`
}

// Budget is what becomes of a PodDisruptionBudget.
type Budget struct {
	Name string `json:"name"`
	// Desired pods must be healthy; Left are when the nodes are lost, After when displaced pods have found nodes.
	Desired int  `json:"desired"`
	Before  int  `json:"before"`
	Left    int  `json:"left"`
	After   int  `json:"after"`
	Broken  bool `json:"broken"`
}

// Gang is what becomes of a gang that lost members, or was added. Members that have succeeded count for as long as their
// controller has live ones.
type Gang struct {
	Name   string `json:"name"`
	Needs  int    `json:"needs"`
	Before int    `json:"before"`
	Left   int    `json:"left"`
	After  int    `json:"after"`
	Broken bool   `json:"broken"`
}

// Reservation is what becomes of unused slots.
type Reservation struct {
	Name    string `json:"name"`
	Before  int    `json:"unusedBefore"`
	Used    int    `json:"used"`
	Lost    int    `json:"lost"`
	Shifted int    `json:"shifted"`
	After   int    `json:"unusedAfter"`
}

// baseline is what was true before.
type baseline struct {
	rooms    map[string]world.Room
	zones    []string
	policies map[string]v1alpha1.ZoneSpreadPolicyStatus
	gangs    map[string]int
	slots    map[*world.Hold]int
}

func (p *play) before() {
	w := p.world
	p.baseline = baseline{rooms: map[string]world.Room{}, policies: map[string]v1alpha1.ZoneSpreadPolicyStatus{}, gangs: map[string]int{}, slots: map[*world.Hold]int{}}
	for _, room := range w.Rooms() {
		p.baseline.rooms[room.Zone] = room
		p.baseline.zones = append(p.baseline.zones, room.Zone)
	}
	for _, policy := range w.Policies() {
		p.baseline.policies[key(policy.Object)] = w.Status(policy, 0)
	}
	for _, h := range w.Holds() {
		for _, n := range w.Unused(h) {
			p.baseline.slots[h] += n
		}
	}
	p.healthy = map[*corev1.Pod]bool{}
	for _, pod := range w.Pods {
		if pod.Node == nil {
			p.result.WaitedBefore++
			continue
		}
		if gang := pod.Gang(); gang != "" {
			p.baseline.gangs[gang]++
		}
		p.healthy[pod.Object] = ready(pod.Object)
	}
	for _, m := range w.Snapshot.Missing {
		p.result.Notes = append(p.result.Notes, m.Words())
	}
}

func key(object metav1.Object) string { return object.GetNamespace() + "/" + object.GetName() }

func ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// after judges what has become of everything.
func (p *play) after() {
	p.countWorkloads()
	p.countBudgets()
	p.countGangs()
	p.countReservations() // shifts slots, and so comes before the zones
	p.countZones()
	p.countPolicies()
}

func (p *play) countWorkloads() {
	rows := p.why
	for _, pod := range p.moved {
		name := p.world.Workload(pod.Object)
		row := rows[name]
		if row == nil {
			row = &Workloads{Name: name}
			rows[name] = row
		}
		row.Pods++
		if pod.Node == nil {
			row.Pending++
			p.result.Pending++
			continue
		}
		p.result.Placed++
		if row.To == nil {
			row.To = map[string]int{}
		}
		row.To[pod.Node.Zone]++
	}
	p.result.Workloads = []Workloads{}
	for _, row := range rows {
		if row.Pods > 0 {
			p.result.Workloads = append(p.result.Workloads, *row)
		}
	}
	slices.SortFunc(p.result.Workloads, func(a, b Workloads) int {
		return cmp.Or(cmp.Compare(b.Pending, a.Pending), cmp.Compare(b.Pods, a.Pods), strings.Compare(a.Name, b.Name))
	})
}

func (p *play) countZones() {
	after := map[string]world.Room{}
	for _, room := range p.world.Rooms() {
		after[room.Zone] = room
	}
	p.result.Zones = []Zone{}
	for _, name := range p.baseline.zones {
		was, is := p.baseline.rooms[name], after[name]
		_, there := after[name]
		p.result.Zones = append(p.result.Zones, Zone{
			Name: name, Lost: !there, PodsBefore: was.Pods, PodsAfter: is.Pods,
			MilliCPUBefore: was.Requested.MilliCPU, MilliCPUAfter: is.Requested.MilliCPU, MilliCPUAllocatable: is.Allocatable.MilliCPU,
			MemoryBefore: was.Requested.Memory, MemoryAfter: is.Requested.Memory, MemoryAllocatable: is.Allocatable.Memory,
		})
	}
}

func (p *play) countPolicies() {
	waiting := map[string]int{}
	for pod := range p.pending {
		for _, policy := range p.world.PoliciesOf(pod.Object) {
			waiting[key(policy.Object)]++
		}
	}
	p.result.Policies = []Policy{}
	for _, policy := range p.world.Policies() {
		name := key(policy.Object)
		was, is := p.baseline.policies[name], p.world.Status(policy, waiting[name])
		row := Policy{Name: name, Pods: is.Pods, Before: was.Pods, Skew: is.Skew, MaxSkew: int64(cmp.Or(policy.Object.Spec.MaxSkew, v1alpha1.DefaultMaxSkew))}
		for _, c := range []struct {
			kind string
			bad  metav1.ConditionStatus
		}{{v1alpha1.ConditionInfeasible, metav1.ConditionTrue}, {v1alpha1.ConditionSatisfied, metav1.ConditionFalse}} {
			after := meta.FindStatusCondition(is.Conditions, c.kind)
			if after == nil || after.Status != c.bad {
				continue
			}
			before := meta.FindStatusCondition(was.Conditions, c.kind)
			if fresh := before == nil || before.Status != c.bad; fresh && !row.Broken {
				row.Broken, row.Message = true, after.Message
			}
			row.Message = cmp.Or(row.Message, after.Message)
		}
		if row.Pods != row.Before || row.Message != "" {
			p.result.Policies = append(p.result.Policies, row)
		}
	}
}

func (p *play) countBudgets() {
	p.result.Budgets = []Budget{}
	for i := range p.world.Snapshot.Budgets {
		object := &p.world.Snapshot.Budgets[i]
		selector, err := metav1.LabelSelectorAsSelector(object.Spec.Selector)
		if err != nil {
			continue
		}
		b := Budget{Name: key(object)}
		expected := 0
		for _, pod := range p.world.In(object.Namespace) {
			if !selector.Matches(labels.Set(pod.Object.Labels)) {
				continue
			}
			expected++
			if p.healthy[pod.Object] {
				b.Before++
				if !p.displaced[pod] {
					b.Left++
				}
			}
			if pod.Node != nil && (p.healthy[pod.Object] || p.displaced[pod]) {
				b.After++
			}
		}
		b.Desired = desiredHealthy(object, expected)
		b.Broken = b.Left < b.Desired && b.Before >= b.Desired
		if b.Left != b.Before {
			p.result.Budgets = append(p.result.Budgets, b)
		}
	}
	slices.SortFunc(p.result.Budgets, func(a, b Budget) int { return strings.Compare(a.Name, b.Name) })
}

// desiredHealthy is how many pods a budget wants healthy, as the disruption controller computes it.
func desiredHealthy(b *policyv1.PodDisruptionBudget, pods int) int {
	expected := pods
	if n := int(b.Status.ExpectedPods); n > expected {
		expected = n
	}
	if m := b.Spec.MinAvailable; m != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(m, expected, true)
		if err != nil {
			return 0
		}
		return n
	}
	if m := b.Spec.MaxUnavailable; m != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(m, expected, true)
		if err != nil {
			return 0
		}
		return max(0, expected-n)
	}
	return 0
}

func (p *play) countGangs() {
	touched := map[string]int{} // displaced members
	for pod := range p.displaced {
		if gang := pod.Gang(); gang != "" {
			touched[gang]++
		}
	}
	for pod := range p.pending {
		if gang := pod.Gang(); gang != "" {
			touched[gang] += 0
		}
	}
	p.result.Gangs = []Gang{}
	for gang, displaced := range touched {
		g := p.world.Gang(gang)
		before, after, needs := p.baseline.gangs[gang]+g.Done, g.Bound+g.Done, g.MinMember()
		p.result.Gangs = append(p.result.Gangs, Gang{
			Name: gang, Needs: needs, Before: before, Left: max(0, before-displaced), After: after, Broken: after < needs,
		})
	}
	slices.SortFunc(p.result.Gangs, func(a, b Gang) int { return strings.Compare(a.Name, b.Name) })
}

func (p *play) countReservations() {
	lost := map[*world.Hold]int{}
	for _, h := range p.world.Holds() {
		lost[h] = h.Lost
	}
	unused := func(h *world.Hold) int {
		sum := 0
		for _, n := range p.world.Unused(h) {
			sum += n
		}
		return sum
	}
	used := map[*world.Hold]int{}
	for _, h := range p.world.Holds() {
		used[h] = p.baseline.slots[h] - lost[h] - unused(h)
	}
	shifted := p.world.ShiftHolds()
	p.result.Reservations = []Reservation{}
	for _, h := range p.world.Holds() {
		if p.baseline.slots[h] > 0 {
			p.result.Reservations = append(p.result.Reservations, Reservation{
				Name: h.Object.Name, Before: p.baseline.slots[h], Used: used[h], Lost: lost[h], Shifted: shifted[h], After: unused(h),
			})
		}
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

// Failures lists all of them, and those that count unless somebody says otherwise.
var (
	Failures        = []string{FailPending, FailPolicy, FailBudget, FailGang, FailReservation}
	DefaultFailures = []string{FailPending, FailPolicy, FailBudget, FailGang}
)

// Failed returns which of the failures that count came to pass.
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
			bad = slices.ContainsFunc(r.Reservations, func(s Reservation) bool { return s.Shifted < s.Lost })
		}
		if bad {
			out = append(out, f)
		}
	}
	return out
}
