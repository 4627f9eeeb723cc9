package preempt

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/proposal"
)

// A search keeps the scheduler from scheduling, so it has limits. They count what it looks at, so that it comes to an
// answer on a busy machine too. It looks at nodes until nodesAtLeast can take a member without the pods that may go, or
// twice as many as members are needed, and at most at podsAtLeast pods, or podsPerMember for each member.
const (
	nodesAtLeast  = 400
	podsAtLeast   = 100_000
	podsPerMember = 200
)

// After searchLimit, or memberLimit for each member if that is more, a search that has an answer looks for no better
// one, and one whose filters have refused refusalsAtLeast nodes gives up. Without the least important pods alone it
// gives up then in any case.
const (
	searchLimit     = 100 * time.Millisecond
	memberLimit     = 200 * time.Microsecond
	refusalsAtLeast = 64
)

// domainLimit is how many domains a packed gang's victims are looked for in.
const domainLimit = 8

// FilterRunner asks the filters of a profile.
type FilterRunner interface {
	// State prepares a cycle's state for a pod, which need not be the cycle's own, and returns the nodes that the pod
	// may go to. It reports false when PreFilter refuses the pod.
	State(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (fwk.CycleState, *fwk.PreFilterResult, bool)
	// Reserve has plugins reserve what the pod takes on a node that the filters have accepted with such a state, and
	// reports whether all have. If so, it is to be undone by Unreserve.
	Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) bool
	Unreserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string)
}

// Gang is a gang that has candidates as members: those that are bound, and how many of them it keeps unless all go.
type Gang struct {
	MinMember int
	Bound     []*v1.Pod
}

// Search is a search for victims. It is used once, in one scheduling cycle.
type Search struct {
	Handle       fwk.Handle
	FilterRunner FilterRunner
	// State is the cycle's.
	State fwk.CycleState
	Nodes []fwk.NodeInfo
	// Request is what the gang was refused for; node i of its Cluster is Nodes[i].
	Request proposal.Request
	// Reserving are the members for which plugins reserve more than the nodes' resources: devices and volumes.
	Reserving map[types.UID]*v1.Pod
	// MayEvict reports whether a pod may be evicted, OnItsWay whether it is a member of the preempting gang that is
	// about to lose its node.
	MayEvict, OnItsWay func(pod *v1.Pod) bool
	// Stays reports whether a pod that terminates cannot be expected to leave: others are not evicted for room that
	// waits for it.
	Stays func(pod *v1.Pod) bool
	// GangOf returns a pod's gang, the same for all of its members; nil if it is in none that keeps members.
	GangOf  func(pod *v1.Pod) *Gang
	Budgets []*policyv1.PodDisruptionBudget
	// DomainWindow is the number of the domainLimit domains, in their order, in which victims are looked for.
	DomainWindow int
	// Now is the clock of the search's limits of time.
	Now func() time.Time

	deadline time.Time
	refusals int               // nodes that the filters refused in all attempts that failed
	usable   []int             // the nodes to place members on
	names    []v1.ResourceName // that members ask for; all amounts are in their order
	byName   map[string]int    // the sites
	sites    []site
	leavers  []*candidate // the members that are about to lose their nodes
	gangs    map[*Gang]*victimGang
	budgets  budgets
	classes  []*class         // those that are to be placed first come first
	states   []fwk.CycleState // by class, before anything has changed
}

// Result is the result of a search.
type Result struct {
	// Nodes are the nodes of the members; empty if no victims help.
	Nodes map[types.UID]string
	// Victims are the pods to be evicted, Leaving those that are on their way out, with their nodes as keys of the
	// cluster.
	Victims, Leaving []*v1.Pod
	// Looked is how many nodes were looked at for victims.
	Looked int
}

// class is a class of members with what the search needs of it.
type class struct {
	*proposal.Class
	info    fwk.PodInfo
	request []int64
	allowed *fwk.PreFilterResult
}

// Run looks for victims.
func (s *Search) Run(ctx context.Context) Result {
	s.begin()
	r := Result{Looked: s.list()}
	best := s.cheapest(ctx, s.domains())
	if !s.Request.Topology.Required && (best == nil || best.cost.violations > 0) { // no budget is violated for a preference
		anywhere := s.cheapest(ctx, [][]int{s.usable})
		if best == nil || anywhere != nil && anywhere.cost.violations < best.cost.violations {
			best = anywhere
		}
	}
	if best != nil {
		best.describe(&r)
	}
	return r
}

func (s *Search) begin() {
	s.deadline = s.Now().Add(max(searchLimit, time.Duration(s.Request.Need)*memberLimit))
	s.names = proposal.Names(s.Request.Classes)
	s.sites, s.byName = make([]site, len(s.Nodes)), make(map[string]int, len(s.Nodes))
	for i, info := range s.Nodes {
		s.sites[i].name = info.Node().Name
		s.byName[s.sites[i].name] = i
	}
	s.gangs, s.budgets = map[*Gang]*victimGang{}, newBudgets(s.Budgets)
}

// overtime reports whether the time of the search is up.
func (s *Search) overtime() bool { return s.Now().After(s.deadline) }

// list finds the usable nodes: those that take a member without the candidates, until it has enough of them. It returns
// on how many nodes it looked for candidates.
func (s *Search) list() (looked int) {
	enough, podsLeft := max(nodesAtLeast, 2*s.Request.Need), max(podsAtLeast, podsPerMember*s.Request.Need)
	bound, without := proposal.NewBound(s.Request), s.without(importanceOfAll, true)
	order := s.order()
	for ; looked < len(order) && len(s.usable) < enough && podsLeft > 0; looked++ {
		i := order[looked]
		if !bound.Possible(s.Nodes[i].Node()) {
			continue
		}
		s.listSite(i)
		podsLeft -= len(s.Nodes[i].GetPods())
		if bound.Node(without, i) > 0 {
			s.sites[i].room = bound.Node(s.Request.Cluster, i)
			s.usable = append(s.usable, i)
		}
	}
	return looked
}

// order lists the nodes from the first on. For a packed gang it lists those of a domain together, and none where its
// members may not be.
func (s *Search) order() []int {
	order := make([]int, len(s.Nodes))
	for k := range order {
		order[k] = (s.Request.Start + k) % len(order)
	}
	topology := s.Request.Topology
	if topology.Key == "" {
		return order
	}
	domainOf := func(i int) string { return s.Nodes[i].Node().Labels[topology.Key] }
	if topology.Required {
		order = slices.DeleteFunc(order, func(i int) bool {
			return domainOf(i) == "" || topology.Domain != "" && domainOf(i) != topology.Domain
		})
	}
	began := map[string]int{}
	for k, i := range order {
		if _, known := began[domainOf(i)]; !known {
			began[domainOf(i)] = k
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(began[domainOf(a)], began[domainOf(b)]) })
	return order
}

// cleared is the cluster without the candidates up to an importance, and without those whose budgets allow nothing if
// these may be violated. It implements proposal.Cluster.
type cleared struct {
	proposal.Cluster
	search  *Search
	limit   importance
	violate bool
}

func (s *Search) without(limit importance, violate bool) *cleared {
	return &cleared{s.Request.Cluster, s, limit, violate}
}

// Free implements proposal.Cluster, for the names of the search.
func (c *cleared) Free(i int, _ []v1.ResourceName, into []int64) {
	copy(into, c.search.free(i))
	for _, candidate := range c.search.sites[i].candidates {
		if candidate.importance() > c.limit || !c.violate && (usage{}).usedUp(c.search.budgetsOf(candidate)) {
			continue
		}
		for j, n := range candidate.amounts {
			into[j] = min(into[j]+n, proposal.Unlimited)
		}
	}
}

// importances lists those of the candidates on some nodes, in order, and first that of none.
func (s *Search) importances(nodes []int) []importance {
	all := []importance{importanceOfNone}
	for _, i := range nodes {
		for _, c := range s.sites[i].candidates {
			if at, known := slices.BinarySearch(all, c.importance()); !known {
				all = slices.Insert(all, at, c.importance())
			}
		}
	}
	return all
}

// enough reports whether some nodes have room for the quorum, by the requests, without candidates up to an importance.
func (s *Search) enough(nodes []int, limit importance, violate bool) bool {
	takes, bound, without := 0, proposal.NewBound(s.Request), s.without(limit, violate)
	for _, i := range nodes {
		takes += bound.Node(without, i)
	}
	return takes >= s.Request.Need
}

// domains lists the nodes of the domains that could hold the gang without the candidates, and have some: of at most
// domainLimit, of those that lack the least unless these have been looked at before.
func (s *Search) domains() (nodes [][]int) {
	if s.Request.Topology.Key == "" {
		return nil
	}
	fit := map[string]int{}
	for _, d := range proposal.Domains(s.Request) {
		fit[d.Name] = d.Bound
	}
	cleared := s.Request
	cleared.Cluster = s.without(importanceOfAll, true)
	domains := slices.DeleteFunc(proposal.Domains(cleared), func(d proposal.Domain) bool {
		return d.Bound < s.Request.Need || !slices.ContainsFunc(d.Nodes, func(i int) bool { return len(s.sites[i].candidates) > 0 })
	})
	slices.SortStableFunc(domains, func(a, b proposal.Domain) int {
		return cmp.Or(cmp.Compare(fit[b.Name], fit[a.Name]), cmp.Compare(a.Name, b.Name))
	})
	usable := sets.New(s.usable...)
	if windows := (len(domains) + domainLimit - 1) / domainLimit; windows > 1 {
		domains = domains[s.DomainWindow%windows*domainLimit:]
	}
	for _, d := range domains[:min(len(domains), domainLimit)] {
		nodes = append(nodes, slices.DeleteFunc(d.Nodes, func(i int) bool { return !usable.Has(i) }))
	}
	return nodes
}

// prepare sets up the classes and the filters' states for them. It reports false if PreFilter refuses one.
func (s *Search) prepare(ctx context.Context) bool {
	if s.states != nil {
		return true
	}
	classes, states := s.placingOrder(), []fwk.CycleState(nil)
	for _, c := range classes {
		state, allowed, ok := s.FilterRunner.State(ctx, s.State, c.Pod)
		if !ok {
			return false
		}
		c.allowed, states = allowed, append(states, state)
	}
	s.classes, s.states = classes, states
	return true
}

// placingOrder lists the classes: the largest first, or the smallest when not all members are needed.
func (s *Search) placingOrder() (classes []*class) {
	total, most := 0, make([]int64, len(s.names))
	for i := range s.Request.Classes {
		c := &class{Class: &s.Request.Classes[i], info: NewPodInfo(s.Request.Classes[i].Pod), request: make([]int64, len(s.names))}
		proposal.Add(c.request, s.names, proposal.Requests(c.Pod))
		total += len(c.Members)
		for j, n := range c.request {
			most[j] = max(most[j], n)
		}
		classes = append(classes, c)
	}
	size := func(c *class) (size float64) {
		for j, n := range c.request {
			if most[j] > 0 {
				size += float64(n) / float64(most[j])
			}
		}
		return size
	}
	slices.SortStableFunc(classes, func(a, b *class) int {
		if s.Request.Need < total {
			a, b = b, a
		}
		return cmp.Compare(size(b), size(a))
	})
	return classes
}

// cheapest returns the cheapest of the ways to make room on the nodes of one of several lists that were found in time,
// nil if none was.
func (s *Search) cheapest(ctx context.Context, lists [][]int) (best *attempt) {
	for _, nodes := range lists {
		if s.overtime() && (best != nil || s.refusals >= 2*refusalsAtLeast) {
			break
		}
		a := s.makeRoom(ctx, nodes, false)
		if a == nil && len(s.Budgets) > 0 {
			a = s.makeRoom(ctx, nodes, true)
		}
		if a != nil && (best == nil || a.cost.compare(best.cost) < 0) {
			best = a
		}
	}
	return best
}

// makeRoom makes room on some nodes by pods that are as unimportant as the requests allow, or by any if the filters
// refuse that. It returns nil if that cannot be done.
func (s *Search) makeRoom(ctx context.Context, nodes []int, violate bool) *attempt {
	limits := s.importances(nodes)
	least := sort.Search(len(limits), func(at int) bool { return s.enough(nodes, limits[at], violate) })
	if least == len(limits) {
		return nil
	}
	if least < len(limits)-1 {
		if a := s.attempt(ctx, nodes, limits[least], violate); a != nil {
			return a
		}
	}
	return s.attempt(ctx, nodes, importanceOfAll, violate)
}
