package preempt

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// attempt is one way to make room for the gang. It works on copies of the nodes.
type attempt struct {
	*Search
	below  rank                 // only pods of a lower rank may go
	states []fwk.CycleState     // by class
	nodes  map[int]fwk.NodeInfo // those that have changed
	freed  map[int][]int64      // what is free on those whose pods have changed
	// guests counts the members that were placed on a node by class, kept is what had to stay free for others when the last one came.
	guests  map[int][]int
	kept    map[int][]int64
	placed  map[types.UID]string
	evicted map[*candidate]bool
	lost    map[*victimGang]int // evicted members
	used    usage
	// refused is true if the filters have refused a node that had room, failed if a plugin could not follow a change, after which the
	// attempt is of no use.
	refused, failed bool
	asked           int  // how often a reprieve has run the filters
	cost            cost // at the end
}

// attempt makes room on some nodes by the eviction of pods below a rank. It returns nil if that cannot be done.
func (s *Search) attempt(ctx context.Context, nodes []int, below rank) *attempt {
	if !s.prepare(ctx) {
		return nil
	}
	a := &attempt{
		Search: s, below: below, nodes: map[int]fwk.NodeInfo{}, freed: map[int][]int64{}, guests: map[int][]int{}, kept: map[int][]int64{},
		placed: map[types.UID]string{}, evicted: map[*candidate]bool{}, lost: map[*victimGang]int{}, used: usage{},
	}
	for _, state := range s.states {
		a.states = append(a.states, state.Clone())
	}
	for _, c := range s.leavers {
		a.removePod(ctx, c.info, c.site)
	}
	for before := -1; before < len(a.placed) && len(a.placed) < s.Request.Need; {
		before = len(a.placed)
		for k := range s.classes { // once more after others: a spread constraint may let a member come only between them
			a.place(ctx, k, nodes)
		}
	}
	if len(a.placed) < s.Request.Need {
		return nil
	}
	a.reprieve(ctx)
	if a.failed {
		return nil
	}
	a.cost = s.costOf(a.victims(), usage{})
	return a
}

// wanted returns how many members of a class are to be placed at most.
func (a *attempt) wanted(c *class) int { return min(len(c.Members), a.Request.Need-len(a.placed)) }

// place places the members of a class on the nodes that cost least, as long as the quorum lacks any. A node that has refused one is asked
// again when no other is left, if members have been placed since: a spread constraint may let others come only then.
func (a *attempt) place(ctx context.Context, k int, nodes []int) {
	c := a.classes[k]
	prices := a.prices(c, nodes)
	refused, mayHelp := false, false
	for _, uid := range c.Members {
		if a.placed[uid] != "" {
			continue
		}
		if len(a.placed) == a.Request.Need {
			return
		}
		for {
			if len(prices) == 0 && mayHelp {
				prices = a.prices(c, nodes)
				refused, mayHelp = false, false
			}
			if len(prices) == 0 {
				return
			}
			if a.failed || a.exhausted() {
				return
			}
			at := 0
			for i := range prices {
				if prices[i].compare(&prices[at]) < 0 {
					at = i
				}
			}
			now, possible := a.price(c, prices[at].site) // a budget may be used up since
			now.violating = prices[at].violating
			if possible && now.compare(&prices[at]) > 0 {
				prices[at] = now
				continue
			}
			if !possible {
				prices = slices.Delete(prices, at, at+1)
				continue
			}
			if !a.accept(ctx, k, &now) {
				refused = true
				switch {
				case !now.violating && a.anyViolates(now.site):
					prices[at].violating = true // other nodes come first
					continue
				case a.guests[now.site] == nil: // otherwise another member may be the reason
					a.refusals++
				}
				prices = slices.Delete(prices, at, at+1)
				continue
			}
			a.placed[uid] = a.sites[now.site].name
			mayHelp = refused
			if elsewhere(now.site, now.victims) {
				prices = a.prices(c, nodes) // a whole gang has gone, and others have become cheaper
				break
			}
			prices[at], possible = a.price(c, now.site)
			if !possible {
				prices = slices.Delete(prices, at, at+1)
			}
			break
		}
	}
}

// prices returns what nodes cost for a member of a class.
func (a *attempt) prices(c *class, nodes []int) []price {
	prices := make([]price, 0, len(nodes))
	for _, i := range nodes {
		if !c.allowed.AllNodes() && !c.allowed.NodeNames.Has(a.sites[i].name) {
			continue
		}
		if p, possible := a.price(c, i); possible {
			prices = append(prices, p)
		}
	}
	return prices
}

// anyViolates reports whether pods on a node may go only by violating a budget.
func (a *attempt) anyViolates(i int) bool {
	return len(a.removable(i, nil, true)) > len(a.removable(i, nil, false))
}

// accept places a member of a class on a node, if the filters accept it there without the victims of its price, or at
// least without all pods that may go, as far as the price may violate budgets. Then the price gets these as victims, and
// most of them will be reprieved.
func (a *attempt) accept(ctx context.Context, k int, p *price) bool {
	a.evict(ctx, p.victims...)
	if !a.failed && !a.fits(ctx, k, p.site) {
		a.refused = true
		a.putBack(ctx, p.victims...)
		all := a.withGangs(a.removable(p.site, nil, p.violating))
		if len(all) <= len(p.victims) {
			return false
		}
		p.victims = all
		a.evict(ctx, all...)
		if !a.fits(ctx, k, p.site) {
			a.putBack(ctx, all...)
			return false
		}
	}
	a.addGuest(ctx, k, p.site)
	kept := make([]int64, len(a.names))
	a.Request.Cluster.Kept(p.site, a.classes[k].Pod, a.names, kept)
	a.kept[p.site] = kept
	return !a.failed
}

// elsewhere reports whether pods are on other nodes too.
func elsewhere(i int, pods []*candidate) bool {
	return slices.ContainsFunc(pods, func(c *candidate) bool { return c.site != i })
}

// fits reports whether the filters let a member of a class onto a node.
func (a *attempt) fits(ctx context.Context, k, i int) bool {
	return a.Handle.RunFilterPlugins(ctx, a.states[k], a.classes[k].Pod, a.node(i)).IsSuccess()
}

// node returns the attempt's copy of a node.
func (a *attempt) node(i int) fwk.NodeInfo {
	if a.nodes[i] == nil {
		a.nodes[i] = a.Nodes[i].Snapshot()
	}
	return a.nodes[i]
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
		if !a.Handle.RunPreFilterExtensionAddPod(ctx, a.states[k], class.Pod, info, node).IsSuccess() {
			a.failed = true
		}
	}
}

func (a *attempt) removePod(ctx context.Context, info fwk.PodInfo, i int) {
	node := a.node(i)
	if err := node.RemovePod(klog.FromContext(ctx), info.GetPod()); err != nil {
		a.failed = true
	}
	for k, class := range a.classes {
		if !a.Handle.RunPreFilterExtensionRemovePod(ctx, a.states[k], class.Pod, info, node).IsSuccess() {
			a.failed = true
		}
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
