package preempt

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/proposal"
)

// trialsPerMember limits how many nodes the filters are asked about for each member, and trialsAtLeast for a gang.
const (
	trialsPerMember = 4
	trialsAtLeast   = 64
)

// A search keeps the scheduler from scheduling. It looks for candidates on the nodes for lookLimit, after which it goes on with those that
// it has, and gives up after searchLimit and memberLimit for each member.
const (
	lookLimit   = 50 * time.Millisecond
	searchLimit = 100 * time.Millisecond
	memberLimit = time.Millisecond
)

// domainLimit is how many domains a packed gang's victims are looked for in.
const domainLimit = 8

// FilterRunner asks the filters of a profile.
type FilterRunner interface {
	// State prepares a cycle's state for a pod, which need not be the cycle's own, and returns the nodes that the pod may
	// go to. It reports false when PreFilter refuses the pod.
	State(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (fwk.CycleState, *fwk.PreFilterResult, bool)
}

// Gang is a gang that has candidates as members.
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
	// MayEvict reports whether a pod may be evicted, OnItsWay whether it is a member of the preempting gang that is about to lose its node.
	MayEvict, OnItsWay func(pod *v1.Pod) bool
	// Stays reports whether a pod that was evicted did not leave in time: others are not evicted for room that waits for it.
	Stays func(pod *v1.Pod) bool
	// KeyOf returns the key of a pod's gang, false for one that is in none; GangOf returns a gang, false if it has no quorum to keep. GangOf is
	// called once for each gang.
	KeyOf   func(pod *v1.Pod) (types.NamespacedName, bool)
	GangOf  func(key types.NamespacedName) (Gang, bool)
	Budgets []*policyv1.PodDisruptionBudget
	// Now is the clock of the search's limits.
	Now func() time.Time

	lookUntil, until time.Time
	// partial is true if time has run out before all nodes were looked at.
	partial bool
	byName  map[string]int // the sites
	spent   cost           // of the victims so far
	names   []v1.ResourceName
	sites   []*site
	gangs   map[types.NamespacedName]*victimGang
	budgets *budgets
	classes []*class
	states  []fwk.CycleState // by class
	trials  int
	lacks   int // how many members of the class that is being placed have no node
}

// Result is the result of a search.
type Result struct {
	// Nodes are the nodes of the members; empty if no victims help.
	Nodes map[types.UID]string
	// Victims are the pods to be evicted, Leaving those that are on their way out, with their nodes as keys of the cluster.
	Victims, Leaving []*v1.Pod
	// Short is how many more members must fit for another search to be worthwhile; 0 if unknown.
	Short int
	// Looked is how many nodes were looked at for victims.
	Looked int
	cost   cost
}

// site is a node as the search changes it.
type site struct {
	name  string
	info  fwk.NodeInfo // without the victims, with the members that were placed here
	pods  []*candidate
	free  []int64 // of the search's names, with all candidates there; nil until it is needed
	ready bool    // pods has been filled in
	// sorted is how many budgets were exhausted when pods was sorted.
	sorted int
}

// candidate is a pod that may be evicted.
type candidate struct {
	info     fwk.PodInfo
	site     int
	amounts  []int64
	priority int32
	leaving  bool
	gone     bool
	gang     *victimGang
	budgets  []*budget // that count its eviction
	violates bool      // one of them allows no more
}

func (c *candidate) pod() *v1.Pod { return c.info.GetPod() }

// victimGang is a gang that candidates are members of.
type victimGang struct {
	Gang
	taken int // how many of it have been taken
	// whole tells that all of it may go, members are they then; both are set when that is needed first.
	looked, whole bool
	members       []*candidate
}

// class is the search's state of members that are alike.
type class struct {
	*proposal.Class
	like    fwk.PodInfo
	request []int64
	only    *fwk.PreFilterResult
}

// Run looks for victims.
func (s *Search) Run(ctx context.Context) Result {
	s.begin()
	r := Result{}
	if s.Request.Topology.Key != "" {
		r = s.inOneDomain(ctx)
	}
	if s.Request.Topology.Key == "" || len(r.Nodes) == 0 && !s.Request.Topology.Required {
		r = s.anywhere(ctx)
	}
	for _, at := range s.sites {
		if at.ready {
			r.Looked++
		}
	}
	return r
}

// relaxed is the request in a cluster without the pods that may be evicted.
func (s *Search) relaxed() proposal.Request {
	r := s.Request
	r.Cluster = &cleared{s.Request.Cluster, s}
	r.Topology.Tried = nil // the filters may have refused a domain because of these pods
	return r
}

// tooFew is the result when at most so many members would fit without the pods that may be evicted.
func (s *Search) tooFew(fit int) Result {
	if s.partial {
		return Result{} // other nodes may help
	}
	return Result{Short: max(1, s.Request.Need-fit)}
}

// anywhere looks for victims in the whole cluster.
func (s *Search) anywhere(ctx context.Context) Result {
	relaxed := s.relaxed()
	relaxed.Topology = proposal.Topology{}
	if r := proposal.Make(relaxed); r.Verdict == proposal.Refused {
		return s.tooFew(r.Bound)
	}
	bound := proposal.NewBound(relaxed)
	var nodes []int
	for i := range s.Nodes {
		if bound.Node(relaxed.Cluster, i) > 0 {
			nodes = append(nodes, i)
		}
	}
	return s.within(ctx, nodes)
}

// inOneDomain looks for victims in the domains that could hold the gang, those first that lack the least, and takes the domain that costs least.
func (s *Search) inOneDomain(ctx context.Context) Result {
	lacking := map[string]int{}
	for _, d := range proposal.Domains(s.Request) {
		lacking[d.Name] = -d.Bound
	}
	most := 0
	domains := slices.DeleteFunc(proposal.Domains(s.relaxed()), func(d proposal.Domain) bool {
		most = max(most, d.Bound)
		return d.Bound < s.Request.Need
	})
	if len(domains) == 0 {
		return s.tooFew(most)
	}
	slices.SortStableFunc(domains, func(a, b proposal.Domain) int {
		return cmp.Or(cmp.Compare(lacking[a.Name], lacking[b.Name]), cmp.Compare(a.Name, b.Name))
	})
	best := Result{}
	for _, d := range domains[:min(len(domains), domainLimit)] {
		in := s.fork()
		if r := in.within(ctx, d.Nodes); len(r.Nodes) > 0 && (len(best.Nodes) == 0 || r.cost.compare(best.cost) < 0) {
			best = r
		}
		if s.late() {
			break
		}
	}
	return best
}

// fork returns a search for the same gang in the cluster as it is, with what is left of the time.
func (s *Search) fork() *Search {
	in := &Search{
		Handle: s.Handle, FilterRunner: s.FilterRunner, State: s.State, Nodes: s.Nodes, Request: s.Request, Budgets: s.Budgets,
		MayEvict: s.MayEvict, OnItsWay: s.OnItsWay, Stays: s.Stays, KeyOf: s.KeyOf, GangOf: s.GangOf, Now: s.Now,
	}
	in.begin()
	in.lookUntil, in.until = s.until, s.until
	return in
}

// within looks for victims on some nodes.
func (s *Search) within(ctx context.Context, nodes []int) Result {
	for c := range s.Request.Classes {
		if !s.prepare(ctx, &s.Request.Classes[c]) {
			return Result{}
		}
	}
	if !s.leave(ctx) {
		return Result{}
	}
	placed := map[types.UID]string{}
	for _, c := range s.order() {
		if s.place(ctx, c, nodes, placed); s.late() {
			return Result{}
		}
	}
	if len(placed) < s.Request.Need {
		return Result{}
	}
	return s.result(placed)
}

// begin sets up what the search keeps.
func (s *Search) begin() {
	began := s.Now()
	s.lookUntil, s.until = began.Add(lookLimit), began.Add(searchLimit+time.Duration(s.Request.Need)*memberLimit)
	s.names = proposal.Names(s.Request.Classes)
	s.sites, s.byName = make([]*site, len(s.Nodes)), make(map[string]int, len(s.Nodes))
	for i, info := range s.Nodes {
		s.sites[i] = &site{name: info.Node().Name, info: info}
		s.byName[info.Node().Name] = i
	}
	s.gangs = map[types.NamespacedName]*victimGang{}
	s.budgets = newBudgets(s.Budgets)
	s.spent = cost{highest: math.MinInt64, serves: 1}
}

// late reports whether the time of the search is up.
func (s *Search) late() bool { return s.Now().After(s.until) }

// leave removes members from nodes that they are about to lose.
func (s *Search) leave(ctx context.Context) bool {
	t := s.try()
	for i, info := range s.Nodes {
		if !slices.ContainsFunc(info.GetPods(), func(p fwk.PodInfo) bool { return s.OnItsWay(p.GetPod()) }) {
			continue
		}
		for _, c := range s.candidates(i) {
			if s.OnItsWay(c.pod()) {
				if !t.remove(ctx, []*candidate{c}) {
					return false
				}
				c.gone = true
				add(s.free(i), c.amounts, 1)
			}
		}
	}
	t.commit()
	return true
}

// prepare sets up a class. It reports false for pods that PreFilter refuses.
func (s *Search) prepare(ctx context.Context, of *proposal.Class) bool {
	c := &class{Class: of, request: s.amounts(of.Pod), like: NewPodInfo(of.Pod)}
	state, only, ok := s.FilterRunner.State(ctx, s.State, of.Pod)
	if c.only = only; ok {
		s.classes, s.states = append(s.classes, c), append(s.states, state)
	}
	return ok
}

func (s *Search) amounts(pod *v1.Pod) []int64 {
	amounts := make([]int64, len(s.names))
	proposal.Add(amounts, s.names, proposal.Requests(pod))
	return amounts
}

// order lists the classes: the largest first, or the smallest when not all members are needed.
func (s *Search) order() []*class {
	total := 0
	most := make([]int64, len(s.names))
	for _, c := range s.classes {
		total += len(c.Members)
		for j, n := range c.request {
			most[j] = max(most[j], n)
		}
	}
	size := func(c *class) float64 {
		size := 0.0
		for j, n := range c.request {
			if most[j] > 0 {
				size += float64(n) / float64(most[j])
			}
		}
		return size
	}
	order := slices.Clone(s.classes)
	slices.SortStableFunc(order, func(a, b *class) int {
		if s.Request.Need < total {
			a, b = b, a
		}
		switch x, y := size(a), size(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return order
}

// place finds nodes for the members of a class, as long as the quorum lacks any.
func (s *Search) place(ctx context.Context, c *class, nodes []int, placed map[types.UID]string) {
	s.lacks = min(len(c.Members), s.Request.Need-len(placed))
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return !c.only.AllNodes() && !c.only.NodeNames.Has(s.sites[i].name) })
	offers := s.offers(c, nodes)
	for _, uid := range c.Members {
		for s.lacks > 0 && len(offers) > 0 {
			if s.late() {
				return
			}
			o := offers[0]
			again, possible := s.offer(c, o.site) // others may have changed it
			switch {
			case !possible:
				heap.Pop(&offers)
				continue
			case !o.opens && again.cost != o.cost:
				offers[0] = again
				heap.Fix(&offers, 0)
				continue
			case !o.opens:
				o = again
			}
			if s.trials++; s.trials > trialsAtLeast+trialsPerMember*s.Request.Need {
				return
			}
			if s.accept(ctx, c, o) {
				placed[uid] = s.sites[o.site].name
				s.lacks--
				if o.emptiesOthers() {
					offers = s.offers(c, nodes) // some have become cheaper
					break
				}
				offers[0] = offer{site: o.site, cost: cost{violations: -1, serves: 1}} // it is priced again when it is looked at
				break
			}
			opened, possible := offer{}, false
			if !o.opens {
				opened, possible = s.open(ctx, c, o.site)
			}
			if !possible {
				heap.Pop(&offers)
				continue
			}
			offers[0] = opened
			heap.Fix(&offers, 0)
		}
	}
}

// offers returns what nodes cost for a member of a class.
func (s *Search) offers(c *class, nodes []int) offers {
	offers := make(offers, 0, len(nodes))
	for _, i := range nodes {
		if o, possible := s.offer(c, i); possible {
			offers = append(offers, o)
		}
	}
	heap.Init(&offers)
	return offers
}

// emptiesOthers reports whether the victims of an offer that was taken have left other nodes too, since a whole gang has gone.
func (o *offer) emptiesOthers() bool {
	return slices.ContainsFunc(o.pods, func(c *candidate) bool {
		return c.gang != nil && len(c.gang.Bound) > 1 && c.gang.taken == len(c.gang.Bound)
	})
}

// result returns the result.
func (s *Search) result(placed map[types.UID]string) Result {
	r := Result{Nodes: placed, cost: s.spent}
	for _, at := range s.sites {
		for _, c := range at.pods {
			switch {
			case !c.gone || s.OnItsWay(c.pod()):
			case c.leaving:
				r.Leaving = append(r.Leaving, c.pod())
			default:
				r.Victims = append(r.Victims, c.pod())
			}
		}
	}
	return r
}

// cleared is a cluster without the pods that may be evicted. It implements proposal.Cluster.
type cleared struct {
	proposal.Cluster
	search *Search
}

// Free implements proposal.Cluster.
func (c *cleared) Free(i int, names []v1.ResourceName, into []int64) {
	c.Cluster.Free(i, names, into)
	for _, one := range c.search.candidates(i) {
		for j, n := range one.amounts { // the request is the same, and so are the names
			into[j] = min(into[j]+n, proposal.Unlimited)
		}
	}
}

// candidates lists the pods on a node that may be evicted, in the order to take them.
func (s *Search) candidates(i int) []*candidate {
	at := s.sites[i]
	switch {
	case !at.ready && s.Now().After(s.lookUntil):
		s.partial = true
		return nil
	case !at.ready:
	case at.sorted == s.budgets.exhausted:
		return at.pods
	default:
		s.sort(at)
		return at.pods
	}
	at.ready = true
	for _, info := range s.Nodes[i].GetPods() {
		pod := info.GetPod()
		leaving := pod.DeletionTimestamp != nil || s.OnItsWay(pod)
		if leaving && s.Stays(pod) || !leaving && !s.MayEvict(pod) {
			continue
		}
		c := &candidate{info: info, site: i, amounts: s.amounts(pod), leaving: leaving, priority: corev1.PodPriority(pod)}
		if !leaving {
			c.gang, c.budgets = s.gangOf(pod), s.budgets.covering(pod)
		}
		at.pods = append(at.pods, c)
	}
	s.sort(at)
	return at.pods
}

// sort orders the candidates of a site by what the budgets allow now.
func (s *Search) sort(at *site) {
	for _, c := range at.pods {
		c.violates = violates(c.budgets, nil)
	}
	slices.SortStableFunc(at.pods, compare)
	at.sorted = s.budgets.exhausted
}

func (s *Search) gangOf(pod *v1.Pod) *victimGang {
	key, ok := s.KeyOf(pod)
	if !ok {
		return nil
	}
	c, known := s.gangs[key]
	if !known {
		if gang, hasQuorum := s.GangOf(key); hasQuorum {
			c = &victimGang{Gang: gang}
		}
		s.gangs[key] = c
	}
	return c
}
