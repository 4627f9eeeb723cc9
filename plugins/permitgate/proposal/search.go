package proposal

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Spare is how many nodes with room a search finds for each class in addition to one for each member.
const Spare = 15

// search is one look at the cluster.
type search struct {
	*Request
	names   []v1.ResourceName
	classes []*class
	total   int // members
	index   classIndex
	// sites are the nodes that have room for at least one member, in the order in which they were looked at.
	sites []site
	// free and kept are for the node that is being looked at.
	free, kept []int64
	// looked counts the nodes that were looked at, from Start on.
	looked int
}

// class is the search's state of a Class.
type class struct {
	*Class
	request []int64 // by search.names
	static  *staticFilters
	// single means that a node takes one member only; hosts means that this holds only for nodes with a host name
	// label.
	single, hosts bool
}

// site is a node that has room.
type site struct {
	at     int
	free   []int64
	zone   string
	domain string
	rooms  []room // in the order of the classes; none for a class of which it takes no member
}

// room is what a site offers a class.
type room struct {
	class int
	fit   int     // how many members it takes, at least 1
	kept  []int64 // of what is free; nil when nothing is
}

// roomFor returns the place of the room for a class among a site's rooms.
func (at *site) roomFor(class int) (place int, found bool) {
	return slices.BinarySearchFunc(at.rooms, class, func(r room, class int) int { return cmp.Compare(r.class, class) })
}

// Make looks for a proposal.
func Make(r Request) Result {
	s := newSearch(&r)
	if r.Topology.Key != "" {
		return s.inOneDomain()
	}
	if s.total >= r.Need {
		s.findSites(false)
		if a := s.inTurn(s.allSites()); a.placed >= r.Need {
			return s.resultOf(a, "")
		}
		s.findSites(true)
		if a := s.fillUp(s.allSites()); a.placed >= r.Need {
			return s.resultOf(a, "")
		}
	}
	s.findSites(true)
	return s.refusedOrUnproven(s.allSites(), "")
}

func newSearch(r *Request) *search {
	s := &search{Request: r, names: Names(r.Classes)}
	s.free, s.kept = make([]int64, len(s.names)), make([]int64, len(s.names))
	for i := range r.Classes {
		c := &class{Class: &r.Classes[i], request: make([]int64, len(s.names))}
		Add(c.request, s.names, Requests(c.Pod))
		c.static = newStaticFilters(c.Pod, r.TolerationOperators)
		c.single = len(HostPorts(c.Pod)) > 0
		c.hosts = apartOverHosts(c.Pod)
		s.classes = append(s.classes, c)
		s.total += len(c.Members)
	}
	s.index = newClassIndex(r)
	return s
}

// findSites finds sites, all of them or enough.
func (s *search) findSites(all bool) {
	n := s.Cluster.Len()
	enough := s.enoughSites()
	for ; s.looked < n && (all || !enough()); s.looked++ {
		s.addSite((s.Start + s.looked) % n)
	}
}

// enoughSites returns a function to call after each node. It reports whether every class has room for its members, on
// as many nodes as members and some to spare.
func (s *search) enoughSites() func() bool {
	type tally struct{ nodes, fit int }
	tallies := make([]tally, len(s.classes))
	seen, lacking := 0, len(s.classes)
	enough := func(c int) bool {
		t, want := tallies[c], len(s.classes[c].Members)
		return t.fit >= want && t.nodes >= want+Spare
	}
	return func() bool {
		for ; seen < len(s.sites); seen++ {
			for _, r := range s.sites[seen].rooms {
				before := enough(r.class)
				tallies[r.class].nodes++
				tallies[r.class].fit += r.fit
				if !before && enough(r.class) {
					lacking--
				}
			}
		}
		return lacking == 0
	}
}

// addSite makes a node a site if it has room.
func (s *search) addSite(at int) {
	s.Cluster.Free(at, s.names, s.free)
	node := s.Cluster.Node(at)
	var rooms []room
	for _, c := range s.index.classesFor(node) {
		if r := s.roomOn(c, at); r.fit > 0 {
			rooms = append(rooms, r)
		}
	}
	if rooms != nil {
		s.sites = append(s.sites, site{
			at: at, free: slices.Clone(s.free), zone: node.Labels[s.SpreadKey], domain: node.Labels[s.Topology.Key], rooms: rooms,
		})
	}
}

// roomOn returns how many members of a class a node takes, by its free resources.
func (s *search) roomOn(index, at int) room {
	c := s.classes[index]
	r := room{class: index, fit: fit(s.free, nil, c.request, len(c.Members))}
	if r.fit == 0 || c.static.check(s.Cluster.Node(at)) != possible {
		return room{}
	}
	clear(s.kept)
	s.Cluster.Kept(at, c.Pod, s.names, s.kept)
	if slices.ContainsFunc(s.kept, func(n int64) bool { return n != 0 }) {
		r.kept = slices.Clone(s.kept)
		r.fit = fit(s.free, r.kept, c.request, len(c.Members))
	}
	if r.fit > 1 && c.onePerNode(s.Cluster.Node(at)) {
		r.fit = 1
	}
	return r
}

// onePerNode reports whether a node takes only one member of a class.
func (c *class) onePerNode(node *v1.Node) bool {
	if c.single {
		return true
	}
	_, host := node.Labels[v1.LabelHostname]
	return c.hosts && host
}

// fit returns how many pods of a size there is room for, limited to most.
func fit(free, kept, request []int64, most int) int {
	n := int64(most)
	for j, r := range request {
		if r == 0 {
			continue
		}
		left := free[j]
		if kept != nil {
			left -= kept[j]
		}
		if left < r {
			return 0
		}
		if left < r*n {
			n = left / r
		}
	}
	return int(n)
}

// allSites lists all sites.
func (s *search) allSites() []int {
	all := make([]int, len(s.sites))
	for i := range all {
		all[i] = i
	}
	return all
}

// upperBound returns the most members that the sites can take.
func (s *search) upperBound(sites []int) int {
	byNode, byClass := 0, make([]int, len(s.classes))
	for _, i := range sites {
		byNode = min(byNode+s.mostOn(&s.sites[i]), s.total)
		for _, r := range s.sites[i].rooms {
			byClass[r.class] = min(byClass[r.class]+r.fit, len(s.classes[r.class].Members))
		}
	}
	sum := 0
	for _, n := range byClass {
		sum += n
	}
	return min(byNode, sum)
}

// mostOn returns the most members, of any classes, that a site can take: for each resource, those that ask for the
// least.
func (s *search) mostOn(at *site) int {
	if len(at.rooms) == 1 {
		return at.rooms[0].fit
	}
	least := 0
	for _, r := range at.rooms {
		least += r.fit
	}
	order := slices.Clone(at.rooms)
	for j := range s.names {
		left := at.free[j]
		promised := int64(Unlimited)
		for _, r := range at.rooms {
			if r.kept == nil {
				promised = 0
			} else {
				promised = min(promised, r.kept[j])
			}
		}
		left -= promised
		slices.SortFunc(order, func(a, b room) int {
			return cmp.Compare(s.classes[a.class].request[j], s.classes[b.class].request[j])
		})
		n := 0
		for _, r := range order {
			want := r.fit
			if request := s.classes[r.class].request[j]; request > 0 {
				want = int(min(int64(want), max(left, 0)/request))
				left -= int64(want) * request
			}
			n += want
		}
		least = min(least, n)
	}
	return least
}

// resultOf is what an attempt comes to.
func (s *search) resultOf(a *attempt, domain string) Result {
	r := Result{Verdict: Proposed, Domain: domain, Bound: a.placed, Nodes: s.looked, Hints: make([]Hint, len(s.classes))}
	for c, sites := range a.sites {
		h := &r.Hints[c]
		h.Members = len(sites)
		used := map[int]bool{}
		for _, i := range sites {
			used[i] = true
			h.Nodes = append(h.Nodes, s.sites[i].at)
		}
		for _, i := range a.withRoom[c] {
			if len(h.Nodes) < h.Members+Spare && !used[i] && s.hasRoom(a, i, c) {
				h.Nodes = append(h.Nodes, s.sites[i].at)
			}
		}
	}
	return r
}

// refusedOrUnproven returns the result if no attempt has placed the quorum.
func (s *search) refusedOrUnproven(sites []int, domain string) Result {
	r := Result{Bound: s.upperBound(sites), Nodes: s.looked, Domain: domain}
	if r.Bound >= s.Need {
		r.Verdict = Unproven
		return r
	}
	r.Reasons = s.reasons(domain)
	return r
}

// Bound says how many of the members of a request a node takes at most.
type Bound struct{ search *search }

// NewBound returns the bound for a request, whose Cluster is not used.
func NewBound(r Request) *Bound {
	r.Cluster = nil // a bound may be kept for long
	return &Bound{newSearch(&r)}
}

// Node returns how many members node i of a cluster takes at most. It is not safe for concurrent use.
func (b *Bound) Node(c Cluster, i int) int {
	s := b.search
	s.Cluster = c
	c.Free(i, s.names, s.free)
	most := 0
	for _, class := range s.index.classesFor(c.Node(i)) {
		most += s.roomOn(class, i).fit
	}
	return min(most, s.total)
}

// Possible reports whether a node may take a member if it has no pods. It is not safe for concurrent use.
func (b *Bound) Possible(node *v1.Node) bool {
	return slices.ContainsFunc(b.search.index.classesFor(node), func(class int) bool {
		return b.search.classes[class].static.check(node) == possible
	})
}
