package preempt

import (
	"cmp"
	"math"
	"slices"
)

// rank orders victims by how bad their eviction is: by whether it violates a budget, then by priority. Pods that leave anyway have the
// lowest rank.
type rank int64

const (
	violating rank = 1 << 33
	unlimited rank = math.MaxInt64
)

func rankOf(priority int32, violates bool) rank {
	r := rank(priority) - math.MinInt32 + 1
	if violates {
		r += violating
	}
	return r
}

// cost is what victims cost, the worst first.
type cost struct {
	violations int64 // of PodDisruptionBudgets
	highest    rank
	sum        int64 // of the ranks without violations, so that it grows with the number of victims above all
	leaving    int64
}

func (c cost) compare(other cost) int { return c.compareEach(1, other, 1) }

// compareEach compares costs for each of the members that the victims make room for.
func (c cost) compareEach(members int64, other cost, otherMembers int64) int {
	each := func(mine, others int64) int { return cmp.Compare(mine*otherMembers, others*members) }
	return cmp.Or(
		each(c.violations, other.violations), cmp.Compare(c.highest, other.highest), each(c.sum, other.sum), each(c.leaving, other.leaving),
	)
}

// price is what a node costs for one more member, by the requests alone.
type price struct {
	site    int
	victims []*candidate
	cost    cost
	members int64 // for how many more members there is room then
	// violating is true if the filters have refused a member even without all pods whose eviction violates no budget.
	violating bool
}

func (p *price) compare(other *price) int {
	if p.violating != other.violating {
		return first(other.violating)
	}
	return p.cost.compareEach(p.members, other.cost, other.members)
}

// price returns what a node costs for one more member of a class; false if it cannot have room. It takes the pods that upstream's
// selectVictimsOnNode would, had only the requests to fit: those that violate no budget first, the least important first, and none that
// the later ones make unnecessary.
func (a *attempt) price(c *class, i int) (price, bool) {
	p := price{site: i}
	lack := a.lack(c, i)
	taken := a.removable(i, lack, true)
	if short(lack) {
		return price{}, false
	}
	for k := range slices.Backward(taken) {
		if add(lack, taken[k].amounts, 1); short(lack) {
			add(lack, taken[k].amounts, -1)
		} else {
			taken = slices.Delete(taken, k, k+1)
		}
	}
	p.victims = a.withGangs(taken)
	p.cost, p.members = a.costOf(p.victims, a.used), int64(a.wanted(c))
	for j, want := range c.request {
		if want > 0 {
			p.members = min(p.members, 1+max(0, -lack[j])/want)
		}
	}
	return p, true
}

// removable lists pods on a node that may go, until nothing is lacking: those that violate no budget, and then the
// others if budgets may be violated. It reduces the lack; without one it lists all.
func (a *attempt) removable(i int, lack []int64, mayViolate bool) (pods []*candidate) {
	for _, violating := range []bool{false, true} {
		if violating && !mayViolate {
			break
		}
		for _, c := range a.sites[i].candidates {
			if lack != nil && !short(lack) {
				break
			}
			if a.evicted[c] || lack != nil && !helps(lack, c.amounts) || a.used.usedUp(a.budgetsOf(c)) != violating ||
				slices.Contains(pods, c) || !a.mayGo(c) {
				continue
			}
			if lack != nil {
				add(lack, c.amounts, -1)
			}
			a.count(1, c)
			pods = append(pods, c)
		}
	}
	a.count(-1, pods...)
	return pods
}

// costOf returns what victims cost after budgets have been used.
func (s *Search) costOf(victims []*candidate, used usage) (sum cost) {
	for _, c := range victims {
		if c.leaving {
			sum.leaving++
			continue
		}
		violates := used.usedUp(s.budgetsOf(c))
		if violates {
			sum.violations++
		}
		used.add(s.budgetsOf(c), 1)
		sum.highest = max(sum.highest, rankOf(c.priority, violates))
		sum.sum += int64(rankOf(c.priority, false))
	}
	for _, c := range victims {
		used.add(s.budgetsOf(c), -1)
	}
	return sum
}

// lack returns how much of each resource a node lacks for one more member of a class; less than nothing where there is more than that.
func (a *attempt) lack(c *class, i int) []int64 {
	free := a.freeNow(i)
	lack := make([]int64, len(a.names))
	a.Request.Cluster.Kept(i, c.Pod, a.names, lack)
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

// spares reports whether a gang can lose one more member: more than its quorum is bound, or less anyway.
func (a *attempt) spares(g *victimGang) bool {
	left := len(g.Bound) - a.lost[g]
	return left > g.MinMember || left < g.MinMember
}

// mayGo reports whether a pod may go: by itself, or together with its whole gang.
func (a *attempt) mayGo(c *candidate) bool {
	switch {
	case c.leaving:
		return true
	case rankOf(c.priority, a.used.usedUp(a.budgetsOf(c))) >= a.below:
		return false
	case c.gang == nil || a.spares(c.gang):
		return true
	}
	return len(a.membersOf(c.gang)) > 0 && rankOf(c.gang.highest, false) < a.below
}

// withGangs returns the pods that must go with some: the other members of gangs that lose their quorum.
func (a *attempt) withGangs(pods []*candidate) []*candidate {
	if !slices.ContainsFunc(pods, func(c *candidate) bool { return c.gang != nil }) {
		return pods
	}
	all, seen := make([]*candidate, 0, len(pods)), map[*candidate]bool{}
	take := func(c *candidate) {
		if !a.evicted[c] && !seen[c] {
			seen[c] = true
			all = append(all, c)
		}
	}
	lost := map[*victimGang]int{}
	for _, c := range pods {
		if c.gang == nil {
			take(c)
			continue
		}
		lost[c.gang]++
		if left := len(c.gang.Bound) - a.lost[c.gang] - lost[c.gang]; left >= c.gang.MinMember || left+1 < c.gang.MinMember {
			take(c)
			continue
		}
		for _, member := range c.gang.members {
			take(member)
		}
	}
	return all
}
