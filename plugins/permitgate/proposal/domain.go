package proposal

import (
	"cmp"
	"math"
	"slices"
)

// maxDomains limits how many domains are tried for one proposal.
const maxDomains = 16

// domain is the sites of one value of the topology's label.
type domain struct {
	name  string
	sites []int
	bound int // the most members that it can take
	room  int // how many pods of the first class it could take
}

// inOneDomain looks for a domain that holds all members, the tightest first.
func (s *search) inOneDomain() Result {
	s.findSites(true)
	domains := s.domains()
	var fit []domain
	best := domain{}
	for _, d := range domains {
		if d.bound > best.bound {
			best = d
		}
		if d.bound >= s.Need && !s.Topology.Tried[d.name] {
			fit = append(fit, d)
		}
	}
	slices.SortFunc(fit, func(a, b domain) int { return cmp.Or(cmp.Compare(a.room, b.room), cmp.Compare(a.name, b.name)) })
	for _, d := range fit[:min(len(fit), maxDomains)] {
		a := s.inTurn(d.sites)
		if a.placed < s.Need {
			a = s.fillUp(d.sites)
		}
		if a.placed >= s.Need {
			return s.resultOf(a, d.name)
		}
	}
	if !s.Topology.Required {
		free := *s.Request
		free.Topology = Topology{}
		return Make(free)
	}
	switch {
	case len(fit) > 0:
		return Result{Verdict: Unproven, Domain: fit[0].name, Bound: fit[0].bound, Nodes: s.looked}
	case best.bound >= s.Need:
		return Result{Verdict: Exhausted, Bound: best.bound, Nodes: s.looked}
	case best.name == "":
		best.name = s.Topology.Domain
	}
	return s.refusedOrUnproven(best.sites, best.name)
}

// Domain is a domain of the topology's label, with its nodes that have room for a member.
type Domain struct {
	Name  string
	Nodes []int
	// Bound is the most members that it can take.
	Bound int
}

// Domains lists the domains of a request's topology that have room for a member, also those that have been tried.
func Domains(r Request) []Domain {
	s := newSearch(&r)
	s.findSites(true)
	var all []Domain
	for _, d := range s.domains() {
		found := Domain{Name: d.name, Bound: d.bound}
		for _, i := range d.sites {
			found.Nodes = append(found.Nodes, s.sites[i].at)
		}
		all = append(all, found)
	}
	return all
}

// domains groups the sites, in the order in which they were found.
func (s *search) domains() []domain {
	var domains []domain
	byName := map[string]int{}
	for i := range s.sites {
		name := s.sites[i].domain
		if name == "" || s.Topology.Domain != "" && name != s.Topology.Domain {
			continue
		}
		d, known := byName[name]
		if !known {
			d = len(domains)
			byName[name] = d
			domains = append(domains, domain{name: name})
		}
		domains[d].sites = append(domains[d].sites, i)
		var kept []int64
		if place, found := s.sites[i].roomFor(0); found {
			kept = s.sites[i].rooms[place].kept
		}
		domains[d].room += fit(s.sites[i].free, kept, s.classes[0].request, math.MaxInt32)
	}
	for d := range domains {
		domains[d].bound = s.upperBound(domains[d].sites)
	}
	return domains
}
