package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"
)

// exchange is who may be removed, and on what terms. It does not change once it has been measured.
type exchange struct {
	r          *Preemption
	names      []v1.ResourceName
	candidates []candidate
	byNode     [][]int32 // the candidates of each node, the most important first
	leaving    []Removal
	companies  []*company
	budgets    *budgets
}

// candidate is a pod that may be removed and stays if it is not.
type candidate struct {
	Candidate
	node     int32
	company  int32 // -1 for a pod that may go by itself
	priority int32
	size     float64 // the largest share of what one node has free
	budgets  []int32
}

// company is a Company with its candidates.
type company struct {
	Company
	members []int32
	highest int32
}

// newExchange gathers the candidates of all nodes.
func newExchange(r *Preemption) *exchange {
	n := r.Cluster.Len()
	x := &exchange{r: r, names: ResourceNames(r.Members), byNode: make([][]int32, n), budgets: newBudgets(r.Budgets)}
	found := make([][]Candidate, n)
	p := &planner{Request: r.Request, n: n}
	p.each(func(i int) { found[i] = r.Candidates(i, x.names) })
	ids := map[*Company]int32{}
	for i, all := range found {
		for _, c := range all {
			if c.Leaving {
				x.leaving = append(x.leaving, Removal{Pod: c.Pod, Node: i})
				continue
			}
			one := candidate{Candidate: c, node: int32(i), company: -1, priority: corev1.PodPriority(c.Pod)} //nolint:gosec // nodes are counted in thousands
			id := int32(len(x.candidates))                                                                   //nolint:gosec // pods are counted in millions at most
			if c.Company != nil {
				at, known := ids[c.Company]
				if !known {
					at = int32(len(x.companies)) //nolint:gosec // fewer than pods
					ids[c.Company] = at
					x.companies = append(x.companies, &company{Company: *c.Company, highest: one.priority})
				}
				one.company = at
				x.companies[at].members = append(x.companies[at].members, id)
				x.companies[at].highest = max(x.companies[at].highest, one.priority)
			}
			x.candidates = append(x.candidates, one)
			x.byNode[i] = append(x.byNode[i], id)
		}
	}
	x.sort(x.leaving)
	p.each(func(i int) {
		for _, id := range x.byNode[i] {
			x.candidates[id].budgets = x.budgets.of(x.candidates[id].Pod)
		}
	})
	return x
}

// measure sizes the candidates, and puts those of a node in the order of their importance.
func (x *exchange) measure(p *planner) {
	p.each(func(i int) {
		for _, id := range x.byNode[i] {
			c := &x.candidates[id]
			for j, gain := range c.Gain {
				c.size = max(c.size, float64(gain)/float64(p.most[j]))
			}
		}
		slices.SortFunc(x.byNode[i], x.byImportance)
	})
}

// byImportance orders candidates by who is to stay rather than another: the higher priority, then the smaller, of
// which more can stay, then the older.
func (x *exchange) byImportance(a, b int32) int {
	one, other := &x.candidates[a], &x.candidates[b]
	return cmp.Or(
		cmp.Compare(other.priority, one.priority),
		cmp.Compare(one.size, other.size),
		startOf(one.Pod).Time.Compare(startOf(other.Pod).Time),
		byAge(one.Pod, other.Pod),
	)
}

// units groups victims that can only be spared together, the most important unit first. Victims of a company that
// loses no more than may go singly are units of their own.
func (x *exchange) units(victims []int32) [][]int32 {
	taken := make([]int, len(x.companies))
	for _, v := range victims {
		if co := x.candidates[v].company; co >= 0 {
			taken[co]++
		}
	}
	var units [][]int32
	whole := map[int32]int{}
	for _, v := range victims {
		co := x.candidates[v].company
		if co < 0 || taken[co] <= x.companies[co].Spare {
			units = append(units, []int32{v})
			continue
		}
		at, known := whole[co]
		if !known {
			at = len(units)
			whole[co] = at
			units = append(units, nil)
		}
		units[at] = append(units[at], v)
	}
	violating := x.violating(victims)
	against := func(u []int32) int {
		for _, v := range u {
			if violating[v] {
				return 0
			}
		}
		return 1
	}
	highest := func(u []int32) (most int32) {
		most = x.candidates[u[0]].priority
		for _, v := range u {
			most = max(most, x.candidates[v].priority)
		}
		return most
	}
	slices.SortStableFunc(units, func(a, b []int32) int {
		return cmp.Or(
			cmp.Compare(against(a), against(b)), cmp.Compare(highest(b), highest(a)), cmp.Compare(len(b), len(a)),
			x.byImportance(a[0], b[0]),
		)
	})
	return units
}

// violating tells which of the victims go against a budget when the most important ones use the budgets up, as the
// plugin DefaultPreemption counts it.
func (x *exchange) violating(victims []int32) map[int32]bool {
	order := slices.Clone(victims)
	slices.SortFunc(order, x.byImportance)
	var left []int32
	violating := map[int32]bool{}
	for _, v := range order {
		if len(x.candidates[v].budgets) == 0 {
			continue
		}
		if left == nil {
			left = slices.Clone(x.budgets.allowed)
		}
		if draw(left, x.candidates[v].budgets) {
			violating[v] = true
		}
	}
	return violating
}

func (x *exchange) violations(victims []int32) int { return len(x.violating(victims)) }

// draw takes one disruption off budgets and reports whether one of them did not allow it.
func draw(left, ids []int32) (violates bool) {
	for _, id := range ids {
		left[id]--
		if left[id] < 0 {
			violates = true
		}
	}
	return violates
}

// ResourceNames lists what members ask for, sorted.
func ResourceNames(members []Member) []v1.ResourceName {
	var names []v1.ResourceName
	for _, m := range members {
		for _, a := range requestsOf(m.Pod) {
			if at, known := slices.BinarySearch(names, a.Name); !known {
				names = slices.Insert(names, at, a.Name)
			}
		}
	}
	return names
}

// startOf returns when a pod started to run, or was created.
func startOf(pod *v1.Pod) metav1.Time {
	if pod.Status.StartTime != nil {
		return *pod.Status.StartTime
	}
	return pod.CreationTimestamp
}

// cost is what a set of victims is to others.
type cost struct {
	violations int
	highest    int32
	pods       int
	sum        int64 // of the priorities
}

// compare tells whether a set of victims is to be preferred to another: as the plugin DefaultPreemption chooses a node,
// by violations, then by the highest priority, then by how many they are, then by their priorities.
func (c cost) compare(d cost) int {
	if c.pods == 0 || d.pods == 0 {
		return cmp.Compare(c.pods, d.pods)
	}
	return cmp.Or(
		cmp.Compare(c.violations, d.violations), cmp.Compare(c.highest, d.highest),
		cmp.Compare(c.pods, d.pods), cmp.Compare(c.sum, d.sum),
	)
}

// costOf sums up victims.
func (x *exchange) costOf(victims []int32) cost {
	c := cost{violations: x.violations(victims)}
	for i, v := range victims {
		one := &x.candidates[v]
		if i == 0 {
			c.highest = one.priority
		}
		c.highest = max(c.highest, one.priority)
		c.pods++
		c.sum += int64(one.priority)
	}
	return c
}
