package preempt

import (
	"cmp"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
)

func priorityOf(pod *v1.Pod) int32 { return corev1.PodPriority(pod) }

// cost is what room costs, the worst first: what counts is the cost of each of the members that it serves.
type cost struct {
	violations int64 // of PodDisruptionBudgets
	highest    int64 // the highest priority
	sum        int64 // of the priorities, each counted from the lowest that there is
	victims    int64
	leaving    int64
	serves     int64
}

func (c cost) compare(other cost) int {
	each := func(x, y int64) int {
		return cmp.Compare(float64(x)/float64(c.serves), float64(y)/float64(other.serves))
	}
	return cmp.Or(
		each(c.violations, other.violations), cmp.Compare(c.highest, other.highest), each(c.sum, other.sum),
		each(c.victims, other.victims), each(c.leaving, other.leaving),
	)
}

// offer is a node for a member, with the pods that have to go for it.
type offer struct {
	cost cost
	site int
	pods []*candidate
	// opens tells that the pods close the node by something else than their size.
	opens bool
}

// offers is a heap, the cheapest first.
type offers []offer

func (o offers) Len() int { return len(o) }
func (o offers) Less(i, j int) bool {
	return cmp.Or(o[i].cost.compare(o[j].cost), cmp.Compare(o[i].site, o[j].site)) < 0
}
func (o offers) Swap(i, j int) { o[i], o[j] = o[j], o[i] }
func (o *offers) Push(x any)   { *o = append(*o, x.(offer)) } //nolint:forcetypeassert // the heap's own
func (o *offers) Pop() any {
	last := (*o)[len(*o)-1]
	*o = (*o)[:len(*o)-1]
	return last
}

// compare orders the candidates of a node: those that leave anyway, then the lowest priority, then those that free the most at once.
func (s *Search) compare(a, b *candidate) int {
	if a.leaving != b.leaving {
		if a.leaving {
			return -1
		}
		return 1
	}
	if x, y := s.budgets.violated(a.pod()), s.budgets.violated(b.pod()); x != y {
		return cmp.Compare(x, y)
	}
	largest := func(c *candidate) int64 {
		if len(c.amounts) == 0 {
			return 0
		}
		return slices.Max(c.amounts)
	}
	alone := func(c *candidate) int { // or with the whole of its gang
		if c.company == nil || c.company.spares() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(alone(a), alone(b)), cmp.Compare(largest(b), largest(a)))
}

// offer says what a node costs one more member of a class, by its size.
func (s *Search) offer(c *class, i int) (offer, bool) {
	lack := s.lack(c, i)
	var taken []*candidate
	for _, one := range s.candidates(i) {
		if !short(lack) {
			break
		}
		if one.gone || !s.mayTake(one) || !helps(lack, one.amounts) {
			continue
		}
		add(lack, one.amounts, -1)
		taken = append(taken, one)
	}
	if short(lack) {
		return offer{}, false
	}
	// The last ones may have made earlier ones needless.
	for k := range slices.Backward(taken) {
		if add(lack, taken[k].amounts, 1); short(lack) {
			add(lack, taken[k].amounts, -1)
		} else {
			taken = slices.Delete(taken, k, k+1)
		}
	}
	return s.priced(c, i, taken, lack, false), true
}

// lack is how much of each resource a node lacks for one more member of a class.
func (s *Search) lack(c *class, i int) []int64 {
	at := s.sites[i]
	if at.free == nil {
		at.free = make([]int64, len(s.names))
		s.Request.Cluster.Free(i, s.names, at.free)
	}
	lack := make([]int64, len(s.names))
	s.Request.Cluster.Kept(i, c.Pod, s.names, lack)
	for j, want := range c.request {
		if want == 0 {
			lack[j] = math.MinInt64 / 4
			continue
		}
		lack[j] += want - at.free[j]
	}
	return lack
}

func short(lack []int64) bool { return slices.ContainsFunc(lack, func(n int64) bool { return n > 0 }) }

func helps(lack, amounts []int64) bool {
	for j, n := range amounts {
		if n > 0 && lack[j] > 0 {
			return true
		}
	}
	return false
}

func add(to, amounts []int64, n int64) {
	for j, amount := range amounts {
		to[j] += n * amount
	}
}

// mayTake reports whether a pod may go: by itself, or with the whole of its gang.
func (s *Search) mayTake(c *candidate) bool {
	return c.company == nil || c.company.spares() || s.mayGo(c.company)
}

// spares reports whether a gang loses nothing but a spare with one more member: it is bound beyond its quorum, or not whole.
func (c *company) spares() bool {
	left := len(c.Bound) - c.taken
	return left > c.MinMember || left < c.MinMember
}

// mayGo reports whether the whole of a gang may go.
func (s *Search) mayGo(c *company) bool {
	if !c.looked {
		c.looked, c.whole = true, true
		byNode := map[string]int{}
		for i, at := range s.sites {
			byNode[at.name] = i
		}
		for _, pod := range c.Bound {
			i, there := byNode[pod.Spec.NodeName]
			if !there {
				c.whole = false
				break
			}
			at := slices.IndexFunc(s.candidates(i), func(one *candidate) bool { return one.pod().UID == pod.UID })
			if at < 0 {
				c.whole = false
				break
			}
			c.members = append(c.members, s.candidates(i)[at])
		}
	}
	return c.whole
}

// all returns the pods that go with some: the other members of gangs that are not spared.
func (s *Search) all(pods []*candidate) []*candidate {
	all := make([]*candidate, 0, len(pods))
	seen := map[types.UID]bool{}
	take := func(c *candidate) {
		if !c.gone && !seen[c.pod().UID] {
			seen[c.pod().UID] = true
			all = append(all, c)
		}
	}
	taken := map[*company]int{}
	for _, c := range pods {
		if c.company == nil {
			take(c)
			continue
		}
		taken[c.company]++
		left := len(c.company.Bound) - c.company.taken - taken[c.company]
		if left >= c.company.MinMember || left+1 < c.company.MinMember {
			take(c)
			continue
		}
		for _, member := range c.company.members {
			take(member)
		}
	}
	return all
}

// priced is an offer with its cost; lack is what the member lacks after it, less than nothing.
func (s *Search) priced(c *class, i int, pods []*candidate, lack []int64, opens bool) offer {
	o := offer{site: i, pods: pods, opens: opens, cost: cost{highest: math.MinInt64, serves: int64(s.lacks)}}
	for j, want := range c.request {
		if want > 0 {
			o.cost.serves = min(o.cost.serves, 1+max(0, -lack[j])/want)
		}
	}
	for _, c := range s.all(pods) {
		if c.leaving {
			o.cost.leaving++
			continue
		}
		o.cost.victims++
		o.cost.highest = max(o.cost.highest, int64(c.priority))
		o.cost.sum += int64(c.priority) - math.MinInt32 + 1
		o.cost.violations += int64(s.budgets.violated(c.pod()))
	}
	return o
}

// budgets are PodDisruptionBudgets as the search uses them up.
type budgets struct {
	selectors []labels.Selector
	of        []*policyv1.PodDisruptionBudget
	left      []int32
}

func newBudgets(list []*policyv1.PodDisruptionBudget) (b budgets) {
	for _, one := range list {
		// An empty selector matches no pod, as for upstream's preemption.
		if selector, err := metav1.LabelSelectorAsSelector(one.Spec.Selector); err == nil && !selector.Empty() {
			b.of, b.selectors, b.left = append(b.of, one), append(b.selectors, selector), append(b.left, one.Status.DisruptionsAllowed)
		}
	}
	return b
}

// each calls f with the budgets that count a pod.
func (b *budgets) each(pod *v1.Pod, f func(i int)) {
	for i, one := range b.of {
		_, counted := one.Status.DisruptedPods[pod.Name]
		if one.Namespace == pod.Namespace && !counted && b.selectors[i].Matches(labels.Set(pod.Labels)) {
			f(i)
		}
	}
}

// violated is 1 when a pod's eviction violates a budget.
func (b *budgets) violated(pod *v1.Pod) (n int) {
	b.each(pod, func(i int) {
		if b.left[i] <= 0 {
			n = 1
		}
	})
	return n
}

// take uses a pod's budgets up.
func (b *budgets) take(pod *v1.Pod) { b.each(pod, func(i int) { b.left[i]-- }) }
