package preempt

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// attempt is one way to make room for the gang. It works on copies of the nodes.
type attempt struct {
	*Search
	nodes   []int                // on which it makes room, in their order
	limit   importance           // of the pods that may go
	violate bool                 // evictions may violate budgets
	states  []fwk.CycleState     // by class
	copies  map[int]fwk.NodeInfo // of the nodes that have changed
	freed   map[int][]int64      // what is free on those whose pods have changed
	// guests counts the members that were placed on a node by class, kept is what had to stay free for others when the
	// last one came.
	guests  map[int][]int
	kept    map[int][]int64
	placed  map[types.UID]string
	evicted map[*candidate]bool // false for those that came back
	lost    map[*victimGang]int // evicted members
	used    usage
	// question is that about the member that is placed next, if plugins reserve for it; reserved is what they have.
	question question
	reserved []reservation

	asked   int  // how often a reprieve has run the filters
	refused int  // nodes that the filters refused even without all pods that may go
	failed  bool // a plugin could not follow a change, after which the attempt is of no use
	cost    cost // at the end
}

// cost is what victims cost, the worst first.
type cost struct {
	violations int   // of PodDisruptionBudgets
	highest    int32 // priority
	victims    int
}

func (c cost) compare(other cost) int {
	return cmp.Or(cmp.Compare(c.violations, other.violations), cmp.Compare(c.highest, other.highest), cmp.Compare(c.victims, other.victims))
}

// attempt makes room on some nodes by pods up to an importance, with evictions that violate budgets or without. It
// returns nil if that cannot be done.
func (s *Search) attempt(ctx context.Context, nodes []int, limit importance, violate bool) *attempt {
	if !s.prepare(ctx) {
		return nil
	}
	a := &attempt{
		Search: s, nodes: slices.Clone(nodes), limit: limit, violate: violate,
		copies: map[int]fwk.NodeInfo{}, freed: map[int][]int64{}, guests: map[int][]int{}, kept: map[int][]int64{},
		placed: map[types.UID]string{}, evicted: map[*candidate]bool{}, lost: map[*victimGang]int{}, used: usage{},
	}
	for _, state := range s.states {
		a.states = append(a.states, state.Clone())
	}
	for _, c := range s.leavers {
		a.removePod(ctx, c.info, c.site)
	}
	a.sortNodes(a.nodes)
	for before := -1; before < len(a.placed) && len(a.placed) < s.Request.Need; {
		before = len(a.placed)
		for k := range s.classes { // once more after others: a spread constraint may let a member come only between them
			a.place(ctx, k)
		}
	}
	a.unreserve(ctx)
	if len(a.placed) < s.Request.Need {
		s.refusals += a.refused
		return nil
	}
	a.reprieve(ctx)
	a.settleTogether(ctx)
	if a.failed {
		return nil
	}
	a.cost = a.costOf(a.victims(), usage{})
	return a
}

// sortNodes orders nodes: those first that have room, then those whose pods that may go cost the least.
func (a *attempt) sortNodes(nodes []int) {
	full, costs := make(map[int]bool, len(nodes)), make(map[int]cost, len(nodes))
	for _, i := range nodes {
		_, emptied := a.freed[i] // a whole gang has gone
		full[i], costs[i] = a.sites[i].room == 0 && !emptied, a.costOf(a.withGangs(a.removable(i)), a.used)
	}
	slices.SortStableFunc(nodes, func(i, j int) int {
		if full[i] != full[j] {
			return first(full[j])
		}
		return costs[i].compare(costs[j])
	})
}

// place places members of a class on one node after the other, on each as many as the filters accept there, as long as
// the quorum lacks any.
func (a *attempt) place(ctx context.Context, k int) {
	c := a.classes[k]
	missing := slices.DeleteFunc(slices.Clone(c.Members), func(uid types.UID) bool { return a.placed[uid] != "" })
	for at, i := range a.nodes {
		most := min(len(missing), a.Request.Need-len(a.placed))
		if most == 0 || a.givesUp() {
			return
		}
		if !c.allowed.AllNodes() && !c.allowed.NodeNames.Has(a.sites[i].name) {
			continue
		}
		n, elsewhere := a.placeOn(ctx, k, i, missing[:most])
		for _, uid := range missing[:n] {
			a.placed[uid] = a.sites[i].name
		}
		missing = missing[n:]
		if elsewhere { // other nodes have more room
			a.sortNodes(a.nodes[at+1:])
		}
	}
}

// placeOn takes all pods off a node that may go, and places the first n of some members of a class there. elsewhere is
// true if pods on other nodes go with them.
func (a *attempt) placeOn(ctx context.Context, k, i int, members []types.UID) (n int, elsewhere bool) {
	c, off := a.classes[k], a.withGangs(a.removable(i))
	lack := a.lack(c, i)
	for _, gone := range off {
		if gone.site == i {
			add(lack, gone.amounts, -1)
		}
	}
	if short(lack) {
		return 0, false
	}
	a.evict(ctx, off...)
	for n < len(members) && !a.failed && !short(a.lack(c, i)) && a.takes(ctx, k, members[n], i) {
		a.addGuest(ctx, k, i)
		n++
	}
	if n == 0 {
		a.putBack(ctx, off...)
		if a.guests[i] == nil { // otherwise another member may be the reason
			a.refused++
		}
		return 0, false
	}
	a.kept[i] = make([]int64, len(a.names))
	a.Request.Cluster.Kept(i, c.Pod, a.names, a.kept[i])
	return n, slices.ContainsFunc(off, func(c *candidate) bool { return c.site != i })
}

// givesUp reports whether to place no more members.
func (a *attempt) givesUp() bool {
	return a.failed || a.refused >= refusalsAtLeast && (a.limit != importanceOfAll || a.overtime())
}

// costOf returns what victims cost after budgets have been used.
func (a *attempt) costOf(victims []*candidate, used usage) cost {
	sum := cost{highest: math.MinInt32}
	for _, c := range victims {
		if c.leaving {
			continue
		}
		if used.usedUp(a.budgetsOf(c)) {
			sum.violations++
		}
		used.add(a.budgetsOf(c), 1)
		sum.highest = max(sum.highest, c.priority)
		sum.victims++
	}
	for _, c := range victims {
		used.add(a.budgetsOf(c), -1)
	}
	return sum
}

// removable lists the pods on a node that may go.
func (a *attempt) removable(i int) (pods []*candidate) {
	for _, c := range a.sites[i].candidates {
		if a.evicted[c] || c.importance() > a.limit || !a.violate && a.used.usedUp(a.budgetsOf(c)) || !a.mayGo(c) {
			continue
		}
		a.count(1, c)
		pods = append(pods, c)
	}
	a.count(-1, pods...)
	return pods
}

// mayGo reports whether a pod may go: by itself, or together with its whole gang.
func (a *attempt) mayGo(c *candidate) bool {
	return c.leaving || c.gang == nil || a.spares(c.gang) || len(a.membersOf(c.gang)) > 0
}

// spares reports whether a gang can lose one more member: more than its quorum is bound, or less anyway.
func (a *attempt) spares(g *victimGang) bool {
	left := len(g.Bound) - a.lost[g]
	return left > g.MinMember || left < g.MinMember
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

// lack returns how much of each resource a node lacks for one more member of a class; less than nothing where there is
// more than that.
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

func add(to, amounts []int64, n int64) {
	for j, amount := range amounts {
		to[j] += n * amount
	}
}

// fits reports whether the filters let a member of a class onto a node.
func (a *attempt) fits(ctx context.Context, k, i int) bool {
	return a.Handle.RunFilterPlugins(ctx, a.states[k], a.classes[k].Pod, a.node(i)).IsSuccess()
}

// node returns the attempt's copy of a node.
func (a *attempt) node(i int) fwk.NodeInfo {
	if a.copies[i] == nil {
		a.copies[i] = a.Nodes[i].Snapshot()
	}
	return a.copies[i]
}

// freeNow returns what is free on a node after the changes so far. It must not be modified.
func (a *attempt) freeNow(i int) []int64 {
	if free := a.freed[i]; free != nil {
		return free
	}
	return a.free(i)
}

func (a *attempt) addFree(i int, amounts []int64, n int64) {
	if a.freed[i] == nil {
		a.freed[i] = slices.Clone(a.free(i))
	}
	add(a.freed[i], amounts, n)
}

// evict takes pods off their nodes.
func (a *attempt) evict(ctx context.Context, pods ...*candidate) {
	for _, c := range pods {
		a.removePod(ctx, c.info, c.site)
		a.evicted[c] = true
		a.addFree(c.site, c.amounts, 1)
	}
	a.count(1, pods...)
}

// putBack undoes evict.
func (a *attempt) putBack(ctx context.Context, pods ...*candidate) {
	for _, c := range pods {
		a.addPod(ctx, c.info, c.site)
		a.evicted[c] = false
		a.addFree(c.site, c.amounts, -1)
	}
	a.count(-1, pods...)
}

// count counts victims against their budgets and gangs, or takes that back.
func (a *attempt) count(sign int, pods ...*candidate) {
	for _, c := range pods {
		a.used.add(a.budgetsOf(c), int32(sign))
		if c.gang != nil {
			a.lost[c.gang] += sign
		}
	}
}

func (a *attempt) addGuest(ctx context.Context, k, i int) {
	a.addPod(ctx, a.classes[k].info, i)
	a.addFree(i, a.classes[k].request, -1)
	if a.guests[i] == nil {
		a.guests[i] = make([]int, len(a.classes))
	}
	a.guests[i][k]++
}

func (a *attempt) addPod(ctx context.Context, info fwk.PodInfo, i int) {
	node := a.node(i)
	node.AddPodInfo(info)
	for k, class := range a.classes {
		a.tellAdded(ctx, a.states[k], class.Pod, info, node)
	}
	if q := a.question; q.state != nil {
		a.tellAdded(ctx, q.state, q.pod, info, node)
	}
}

// tellAdded updates the filters' state for a pod when another has come to a node.
func (a *attempt) tellAdded(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.PodInfo, node fwk.NodeInfo) {
	if !a.Handle.RunPreFilterExtensionAddPod(ctx, state, pod, info, node).IsSuccess() {
		a.failed = true
	}
}

func (a *attempt) removePod(ctx context.Context, info fwk.PodInfo, i int) {
	node := a.node(i)
	if err := node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
		a.failed = true
	}
	for k, class := range a.classes {
		a.tellRemoved(ctx, a.states[k], class.Pod, info, node)
	}
	if q := a.question; q.state != nil {
		a.tellRemoved(ctx, q.state, q.pod, info, node)
	}
}

// tellRemoved undoes tellAdded.
func (a *attempt) tellRemoved(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.PodInfo, node fwk.NodeInfo) {
	if !a.Handle.RunPreFilterExtensionRemovePod(ctx, state, pod, info, node).IsSuccess() {
		a.failed = true
	}
}

// victims lists those that have been evicted, in the order of the nodes.
func (a *attempt) victims() (victims []*candidate) {
	for _, i := range slices.Sorted(maps.Keys(a.freed)) {
		for _, c := range a.sites[i].candidates {
			if a.evicted[c] {
				victims = append(victims, c)
			}
		}
	}
	return victims
}

// describe writes what the attempt comes to.
func (a *attempt) describe(r *Result) {
	r.Nodes = a.placed
	for _, c := range a.victims() {
		if c.leaving {
			r.Leaving = append(r.Leaving, c.pod())
		} else {
			r.Victims = append(r.Victims, c.pod())
		}
	}
}
