package proposal

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// attempt is an assignment of members to sites.
type attempt struct {
	withRoom [][]int   // by class, the sites with room for it at the beginning
	left     [][]int64 // by site, what is left free; nil if nothing has been taken
	taken    [][]int   // by site and place of the class's room, how many; nil where nothing has been taken
	sites    [][]int   // by class, of the first of its members
	placed   int
}

func (s *search) newAttempt(among []int) *attempt {
	a := &attempt{
		withRoom: make([][]int, len(s.classes)), left: make([][]int64, len(s.sites)), taken: make([][]int, len(s.sites)),
		sites: make([][]int, len(s.classes)),
	}
	for _, i := range among {
		for _, r := range s.sites[i].rooms {
			a.withRoom[r.class] = append(a.withRoom[r.class], i)
		}
	}
	return a
}

// hasRoom reports whether a site takes one more member of a class.
func (s *search) hasRoom(a *attempt, i, c int) bool {
	at := &s.sites[i]
	place, found := at.roomFor(c)
	if !found {
		return false
	}
	left := a.left[i]
	if left == nil {
		return true
	}
	r := &at.rooms[place]
	if a.taken[i][place] >= r.fit {
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
		a.taken[i] = make([]int, len(s.sites[i].rooms))
	}
	for j, want := range s.classes[c].request {
		a.left[i][j] -= want
	}
	place, _ := s.sites[i].roomFor(c)
	a.taken[i][place]++
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
	for _, c := range s.classesBy(s.relativeSize()) {
		zones := s.zones(a.withRoom[c], load)
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
func (s *search) zones(withRoom []int, load map[string]int) zonesByLoad {
	var zones zonesByLoad
	byName := map[string]*zone{}
	for _, i := range withRoom {
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
	sites := slices.DeleteFunc(slices.Clone(a.withRoom[c]), func(i int) bool { return !s.hasRoom(a, i, c) })
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
	add(s.classesBy(s.relativeSize()))
	for j := range s.names {
		sizes := make([]float64, len(s.classes))
		for c := range sizes {
			sizes[c] = float64(s.classes[c].request[j])
		}
		add(s.classesBy(sizes))
	}
	if s.Need < s.total {
		smallest := slices.Clone(orders[0])
		slices.Reverse(smallest)
		add(smallest)
	}
	return orders
}

// classesBy lists the classes, the biggest first.
func (s *search) classesBy(sizes []float64) []int {
	order := make([]int, len(s.classes))
	for c := range order {
		order[c] = c
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(sizes[y], sizes[x]) })
	return order
}

// relativeSize returns, for each class, the largest share of what the roomiest site has of a resource that a member asks
// for.
func (s *search) relativeSize() []float64 {
	most := make([]int64, len(s.names))
	for j := range most {
		most[j] = 1
		for i := range s.sites {
			most[j] = max(most[j], s.sites[i].free[j])
		}
	}
	sizes := make([]float64, len(s.classes))
	for c := range sizes {
		for j, want := range s.classes[c].request {
			sizes[c] = max(sizes[c], float64(want)/float64(most[j]))
		}
	}
	return sizes
}
