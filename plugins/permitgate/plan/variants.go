package plan

import (
	"cmp"
	"iter"
	"slices"
)

// maxDomains bounds how many domains are tried for members that must be together.
const maxDomains = 16

// variant is one way to go about it.
type variant struct {
	order []int // of the classes
	limit []int // by class: how many of its pods are tried
	// only confines the first of a company, by term, to a domain.
	only map[int]int32
}

// variants yields the ways that are tried until one places the quorum.
func (p *planner) variants() iter.Seq[variant] {
	return func(yield func(variant) bool) {
		all := make([]int, len(p.classes))
		for i, c := range p.classes {
			all[i] = len(c.pods)
		}
		for _, order := range p.orders() {
			for only := range p.companies() {
				if !yield(variant{order: order, limit: all, only: only}) {
					return
				}
			}
		}
		if p.Need < len(p.Members) && len(p.classes) > 1 {
			// The biggest may have taken what several smaller ones need: try those first.
			order := slices.Clone(p.orders()[0])
			slices.Reverse(order)
			for only := range p.companies() {
				if !yield(variant{order: order, limit: all, only: only}) {
					return
				}
			}
		}
	}
}

// orders lists orders of the classes without repetition: by the size of the members, and by what they ask of
// each resource, the biggest first.
func (p *planner) orders() [][]int {
	var orders [][]int
	add := func(size func(c *class) float64) {
		order := make([]int, len(p.classes))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(x, y int) int {
			return cmp.Compare(size(p.classes[y]), size(p.classes[x]))
		})
		for _, known := range orders {
			if slices.Equal(known, order) {
				return
			}
		}
		orders = append(orders, order)
	}
	add(func(c *class) float64 { return c.size })
	for j := range p.names {
		add(func(c *class) float64 { return float64(c.request[j]) })
	}
	return orders
}

// companies yields where members that must be together might be: at first wherever the first of them
// finds its best node, and then, domain by domain, where there is room for most of them.
func (p *planner) companies() iter.Seq[map[int]int32] {
	return func(yield func(map[int]int32) bool) {
		if !yield(nil) {
			return
		}
		for t, from := range p.terms {
			if from.anti || from.total > 0 || !from.self {
				continue
			}
			for _, d := range p.roomiest(from) {
				only := map[int]int32{}
				for other, o := range p.terms {
					if other == t || !o.anti && o.total == 0 && o.self && o.key == from.key {
						only[other] = d
					}
				}
				if !yield(only) {
					return
				}
			}
			return // the domains of one key; nested companies are left to luck
		}
	}
}

// roomiest lists domains of a term's key: the ones that could hold all of its class, the tightest first,
// then the others, the roomiest first.
func (p *planner) roomiest(t *term) []int32 {
	c := p.classes[t.class]
	k := len(p.names)
	room := make([]int64, len(t.names))
	for i, d := range t.domainOf {
		if d < 0 || c.static[i] != possible {
			continue
		}
		fit := int64(len(c.pods))
		for j, free := range p.free[i*k:][:k] {
			if c.request[j] > 0 {
				fit = min(fit, max(free, 0)/c.request[j])
			}
		}
		room[d] += fit
	}
	var domains []int32
	for d, n := range room {
		if n > 0 {
			domains = append(domains, int32(d)) //nolint:gosec // as many as nodes at most
		}
	}
	want := int64(len(c.pods))
	slices.SortFunc(domains, func(x, y int32) int {
		a, b := room[x], room[y]
		switch {
		case a >= want && b >= want && a != b:
			return cmp.Compare(a, b)
		case a != b:
			return cmp.Compare(b, a)
		}
		return cmp.Compare(t.names[x], t.names[y])
	})
	return domains[:min(len(domains), maxDomains)]
}
