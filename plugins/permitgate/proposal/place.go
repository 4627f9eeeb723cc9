package proposal

import (
	"cmp"
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

// inTurn places the classes, the biggest first, on one site after the other in turn.
func (s *search) inTurn(among []int) *attempt {
	a := s.newAttempt(among)
	for _, c := range s.classesBy(s.relativeSize()) {
		missing := len(s.classes[c].Members)
		for sites := s.mixed(a.withRoom[c]); missing > 0 && len(sites) > 0; {
			var withRoom []int
			for _, i := range sites {
				if missing > 0 && s.hasRoom(a, i, c) {
					s.assign(a, i, c)
					missing--
					withRoom = append(withRoom, i)
				}
			}
			sites = withRoom
		}
	}
	return a
}

// mixed returns sites with those of the zones in turn.
func (s *search) mixed(sites []int) []int {
	turn, taken := make(map[int]int, len(sites)), map[string]int{}
	for _, i := range sites {
		turn[i] = taken[s.sites[i].zone]
		taken[s.sites[i].zone]++
	}
	mixed := slices.Clone(sites)
	slices.SortStableFunc(mixed, func(x, y int) int { return cmp.Compare(turn[x], turn[y]) })
	return mixed
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

// classOrders returns orders of the classes: by size and by each resource, the biggest first, and, if some members may
// be left out, the smallest first.
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

// relativeSize returns, for each class, the largest share of what the roomiest site has of a resource that a member
// asks for.
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
