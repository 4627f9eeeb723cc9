package preempt

import (
	"cmp"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// cost is what room costs, the worst first: what counts is the cost of each of the members that it serves.
type cost struct {
	violations int64 // of PodDisruptionBudgets
	highest    int64 // the highest priority
	sum        int64 // sum of the priorities, each counted from the lowest possible one
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

// add adds what more victims cost.
func (c *cost) add(more cost) {
	c.violations += more.violations
	c.highest = max(c.highest, more.highest)
	c.sum += more.sum
	c.victims += more.victims
	c.leaving += more.leaving
}

// offer is a node for a member, with the victims that it needs.
type offer struct {
	cost cost
	site int
	pods []*candidate
	// opens is true if the victims close the node by something other than their requests.
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

// compare orders the candidates of a node: first those that leave anyway, then those that violate no budget, then by the lowest
// priority, then by the most room.
func compare(a, b *candidate) int {
	if a.leaving != b.leaving {
		if a.leaving {
			return -1
		}
		return 1
	}
	if a.violates != b.violates {
		if b.violates {
			return -1
		}
		return 1
	}
	largest := func(c *candidate) int64 {
		if len(c.amounts) == 0 {
			return 0
		}
		return slices.Max(c.amounts)
	}
	alone := func(c *candidate) int { // or together with its whole gang
		if c.gang == nil || c.gang.spares() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.priority, b.priority), cmp.Compare(alone(a), alone(b)), cmp.Compare(largest(b), largest(a)))
}

// offer returns what a node costs for one more member of a class, by its requests.
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
	// The last ones may make earlier ones unnecessary.
	for k := range slices.Backward(taken) {
		if add(lack, taken[k].amounts, 1); short(lack) {
			add(lack, taken[k].amounts, -1)
		} else {
			taken = slices.Delete(taken, k, k+1)
		}
	}
	return s.priced(c, i, taken, lack, false), true
}

// lack returns how much of each resource a node lacks for one more member of a class.
func (s *Search) lack(c *class, i int) []int64 {
	free := s.free(i)
	lack := make([]int64, len(s.names))
	s.Request.Cluster.Kept(i, c.Pod, s.names, lack)
	for j, want := range c.request {
		if want == 0 {
			lack[j] = math.MinInt64 / 4
			continue
		}
		lack[j] += want - free[j]
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

// mayTake reports whether a pod may go: by itself, or together with its whole gang.
func (s *Search) mayTake(c *candidate) bool {
	return c.gang == nil || c.gang.spares() || s.mayGo(c.gang)
}

// spares reports whether a gang can lose one more member: more than its quorum is bound, or less anyway.
func (c *victimGang) spares() bool {
	left := len(c.Bound) - c.taken
	return left > c.MinMember || left < c.MinMember
}

// mayGo reports whether a whole gang may be evicted.
func (s *Search) mayGo(c *victimGang) bool {
	if !c.looked {
		c.looked, c.whole = true, true
		for _, pod := range c.Bound {
			i, there := s.byName[pod.Spec.NodeName]
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

// all returns the pods that must be evicted with some: the other members of gangs that lose their quorum.
func (s *Search) all(pods []*candidate) []*candidate {
	all := make([]*candidate, 0, len(pods))
	seen := map[types.UID]bool{}
	take := func(c *candidate) {
		if !c.gone && !seen[c.pod().UID] {
			seen[c.pod().UID] = true
			all = append(all, c)
		}
	}
	taken := map[*victimGang]int{}
	for _, c := range pods {
		if c.gang == nil {
			take(c)
			continue
		}
		taken[c.gang]++
		left := len(c.gang.Bound) - c.gang.taken - taken[c.gang]
		if left >= c.gang.MinMember || left+1 < c.gang.MinMember {
			take(c)
			continue
		}
		for _, member := range c.gang.members {
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
	before := map[*budget]int32{}
	for _, c := range s.all(pods) {
		if c.leaving {
			o.cost.leaving++
			continue
		}
		if violates(c.budgets, before) {
			o.cost.violations++
		}
		for _, one := range c.budgets {
			before[one]++
		}
		o.cost.victims++
		o.cost.highest = max(o.cost.highest, int64(c.priority))
		o.cost.sum += int64(c.priority) - math.MinInt32 + 1
	}
	return o
}
