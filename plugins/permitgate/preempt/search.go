package preempt

import (
	"container/heap"
	"context"
	"slices"

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

// Asker asks the filters of a profile.
type Asker interface {
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
	Handle fwk.Handle
	Asker  Asker
	// State is the cycle's.
	State fwk.CycleState
	Nodes []fwk.NodeInfo
	// Request is what the gang was refused for; node i of its Cluster is Nodes[i].
	Request proposal.Request
	// MayEvict reports whether a pod may be evicted, OnItsWay whether it is a member of the preempting gang that is about to lose its node.
	MayEvict, OnItsWay func(pod *v1.Pod) bool
	// Stays reports whether a pod that was evicted did not leave in time: others are not evicted for room that waits for it.
	Stays func(pod *v1.Pod) bool
	// GangOf returns the gang of a pod, false for one that is in none.
	GangOf  func(pod *v1.Pod) (types.NamespacedName, Gang, bool)
	Budgets []*policyv1.PodDisruptionBudget

	names   []v1.ResourceName
	sites   []*site
	gangs   map[types.NamespacedName]*victimGang
	budgets budgets
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
}

// site is a node as the search changes it.
type site struct {
	name  string
	info  fwk.NodeInfo // without the victims, with the members that were placed here
	pods  []*candidate
	free  []int64 // of the search's names, with all candidates there; nil until it is needed
	ready bool    // pods has been filled in
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
	relaxed := s.Request
	relaxed.Cluster = &cleared{s.Request.Cluster, s}
	r := proposal.Make(relaxed)
	if r.Verdict == proposal.Exhausted {
		// The filters have refused each domain that could hold the gang, perhaps because of pods that may be evicted.
		relaxed.Topology.Tried = nil
		r = proposal.Make(relaxed)
	}
	if r.Verdict == proposal.Refused {
		return Result{Short: max(1, s.Request.Need-r.Bound)}
	}
	for c := range s.Request.Classes {
		if !s.prepare(ctx, &s.Request.Classes[c]) {
			return Result{}
		}
	}
	if !s.leave(ctx) {
		return Result{}
	}
	bound := proposal.NewBound(relaxed)
	var nodes []int
	for i := range s.Nodes {
		if r.Domain != "" && s.Nodes[i].Node().Labels[s.Request.Topology.Key] != r.Domain {
			continue
		}
		if bound.Node(relaxed.Cluster, i) > 0 {
			nodes = append(nodes, i)
		}
	}
	placed := map[types.UID]string{}
	for _, c := range s.order() {
		s.place(ctx, c, nodes, placed)
	}
	if len(placed) < s.Request.Need {
		return Result{}
	}
	return s.result(placed)
}

// begin sets up what the search keeps.
func (s *Search) begin() {
	s.names = proposal.Names(s.Request.Classes)
	s.sites = make([]*site, len(s.Nodes))
	for i, info := range s.Nodes {
		s.sites[i] = &site{name: info.Node().Name, info: info}
	}
	s.gangs = map[types.NamespacedName]*victimGang{}
	s.budgets = newBudgets(s.Budgets)
}

// leave removes members from nodes that they are about to lose.
func (s *Search) leave(ctx context.Context) bool {
	t := s.try()
	for i := range s.sites {
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
	c := &class{Class: of, request: s.amounts(of.Pod), like: newPodInfo(of.Pod)}
	state, only, ok := s.Asker.State(ctx, s.State, of.Pod)
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
	offers := make(offers, 0, len(nodes))
	for _, i := range nodes {
		if c.only.AllNodes() || c.only.NodeNames.Has(s.sites[i].name) {
			if o, possible := s.offer(c, i); possible {
				offers = append(offers, o)
			}
		}
	}
	heap.Init(&offers)
	for _, uid := range c.Members {
		for s.lacks > 0 && len(offers) > 0 {
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

// result returns the result.
func (s *Search) result(placed map[types.UID]string) Result {
	r := Result{Nodes: placed}
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
	if at.ready {
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
			c.gang = s.gangOf(pod)
		}
		at.pods = append(at.pods, c)
	}
	slices.SortStableFunc(at.pods, s.compare)
	return at.pods
}

func (s *Search) gangOf(pod *v1.Pod) *victimGang {
	key, is, ok := s.GangOf(pod)
	if !ok {
		return nil
	}
	c := s.gangs[key]
	if c == nil {
		c = &victimGang{Gang: is}
		s.gangs[key] = c
	}
	return c
}
