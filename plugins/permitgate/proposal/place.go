package proposal

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// attempt is an assignment of members to sites.
type attempt struct {
	among  []int     // the sites
	left   [][]int64 // by site, what is left free; nil if nothing has been taken
	taken  [][]int   // by site and class, how many; nil where nothing has been taken
	sites  [][]int   // by class, of the first of its members
	placed int
}

func (s *search) newAttempt(among []int) *attempt {
	return &attempt{among: among, left: make([][]int64, len(s.sites)), taken: make([][]int, len(s.sites)), sites: make([][]int, len(s.classes))}
}

// hasRoom reports whether a site takes one more member of a class.
func (s *search) hasRoom(a *attempt, i, c int) bool {
	at := &s.sites[i]
	r := &at.rooms[c]
	if r.fit == 0 {
		return false
	}
	left := a.left[i]
	if left == nil {
		return true
	}
	if a.taken[i][c] >= r.fit {
		return false
	}
	for j, want := range s.classes[c].request {
		have := left[j]
		if r.kept != nil {
			have -= r.kept[j]
		}
		if want > 0 && want > have {
			return false
		}
	}
	return true
}

// assign gives a site to the next member of a class.
func (s *search) assign(a *attempt, i, c int) {
	if a.left[i] == nil {
		a.left[i] = slices.Clone(s.sites[i].free)
		a.taken[i] = make([]int, len(s.classes))
	}
	for j, want := range s.classes[c].request {
		a.left[i][j] -= want
	}
	a.taken[i][c]++
	a.sites[c] = append(a.sites[c], i)
	a.placed++
}

// overZones places the classes, the biggest first, zone by zone in turn, and within a zone site by site in turn.
func (s *search) overZones(among []int) *attempt {
	a := s.newAttempt(among)
	load := maps.Clone(s.Placed)
	if load == nil {
		load = map[string]int{}
	}
	for _, c := range s.classesBy(s.relativeSize) {
		zones := s.zones(among, c, load)
		for range s.classes[c].Members {
			for len(zones) > 0 && !zones[0].assignNext(s, a, c) {
				heap.Pop(&zones)
			}
			if len(zones) == 0 {
				break
			}
			zones[0].load++
			load[zones[0].name]++
			heap.Fix(&zones, 0)
		}
	}
	return a
}

// zone is the sites of a zone that may have room, load how many members the zone has, and order its place among those
// with as many.
type zone struct {
	name        string
	sites       []int
	at          int
	load, order int
}

// zonesByLoad are zones as a heap, the one with the fewest members on top: there may be as many as nodes.
type zonesByLoad []*zone

// Len implements heap.Interface.
func (z *zonesByLoad) Len() int { return len(*z) }

// Less implements heap.Interface.
func (z *zonesByLoad) Less(i, j int) bool {
	a, b := (*z)[i], (*z)[j]
	return a.load < b.load || a.load == b.load && a.order < b.order
}

// Swap implements heap.Interface.
func (z *zonesByLoad) Swap(i, j int) { (*z)[i], (*z)[j] = (*z)[j], (*z)[i] }

// Push implements heap.Interface.
func (z *zonesByLoad) Push(x any) { *z = append(*z, x.(*zone)) } //nolint:forcetypeassert // the heap's own

// Pop implements heap.Interface.
func (z *zonesByLoad) Pop() any {
	last := (*z)[len(*z)-1]
	*z = (*z)[:len(*z)-1]
	return last
}

// zones groups the sites that have room for a class, in the order in which they were found.
func (s *search) zones(among []int, c int, load map[string]int) zonesByLoad {
	var zones zonesByLoad
	byName := map[string]*zone{}
	for _, i := range among {
		if s.sites[i].rooms[c].fit == 0 {
			continue
		}
		name := s.sites[i].zone
		z := byName[name]
		if z == nil {
			z = &zone{name: name, load: load[name], order: len(zones)}
			byName[name] = z
			zones = append(zones, z)
		}
		z.sites = append(z.sites, i)
	}
	heap.Init(&zones)
	return zones
}

// assignNext gives the next site with room to a member, and drops those that have none.
func (z *zone) assignNext(s *search, a *attempt, c int) bool {
	for len(z.sites) > 0 {
		z.at %= len(z.sites)
		i := z.sites[z.at]
		if s.hasRoom(a, i, c) {
			s.assign(a, i, c)
			z.at++
			return true
		}
		z.sites = slices.Delete(z.sites, z.at, z.at+1)
	}
	return false
}

// fillUp fills up sites, the fullest first, in several orders of the classes until one places the quorum, and returns
// the best attempt.
func (s *search) fillUp(among []int) *attempt {
	var best *attempt
	for _, order := range s.classOrders() {
		a := s.newAttempt(among)
		for _, c := range order {
			s.fillWith(a, c)
		}
		if best == nil || a.placed > best.placed {
			best = a
		}
		if best.placed >= s.Need {
			break
		}
	}
	return best
}

// fillWith places as many members of a class as it can.
func (s *search) fillWith(a *attempt, c int) {
	sites := slices.DeleteFunc(slices.Clone(a.among), func(i int) bool { return !s.hasRoom(a, i, c) })
	spare := make(map[int]float64, len(sites))
	for _, i := range sites {
		left := a.left[i]
		if left == nil {
			left = s.sites[i].free
		}
		for j, want := range s.classes[c].request {
			if want > 0 {
				spare[i] += float64(left[j]) / float64(want)
			}
		}
	}
	slices.SortStableFunc(sites, func(x, y int) int { return cmp.Compare(spare[x], spare[y]) })
	for _, i := range sites {
		for len(a.sites[c]) < len(s.classes[c].Members) && s.hasRoom(a, i, c) {
			s.assign(a, i, c)
		}
	}
}

// classOrders returns orders of the classes: by size and by each resource, the biggest first, and, if some members may be
// left out, the smallest first.
func (s *search) classOrders() (orders [][]int) {
	add := func(order []int) {
		if !slices.ContainsFunc(orders, func(known []int) bool { return slices.Equal(known, order) }) {
			orders = append(orders, order)
		}
	}
	add(s.classesBy(s.relativeSize))
	for j := range s.names {
		add(s.classesBy(func(c int) float64 { return float64(s.classes[c].request[j]) }))
	}
	if s.Need < s.total {
		smallest := slices.Clone(orders[0])
		slices.Reverse(smallest)
		add(smallest)
	}
	return orders
}

// classesBy lists the classes, the biggest first.
func (s *search) classesBy(size func(c int) float64) []int {
	order := make([]int, len(s.classes))
	for c := range order {
		order[c] = c
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(size(y), size(x)) })
	return order
}

// relativeSize is the largest share of what the roomiest site has of a resource that a member asks for.
func (s *search) relativeSize(c int) float64 {
	size := 0.0
	for j, want := range s.classes[c].request {
		most := int64(1)
		for i := range s.sites {
			most = max(most, s.sites[i].free[j])
		}
		size = max(size, float64(want)/float64(most))
	}
	return size
}
