package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// DefaultScale is the default share of the trace's live population: about a thousand pods on as many nodes, two minutes on
// two idle cores.
const DefaultScale = 0.05

// maxNodes is the limit of Kubernetes.
const maxNodes = 5000

// Options choose a Plan.
type Options struct {
	// Scale is the share of the trace's live population, above 0, at most 1.
	Scale float64
	// Seed decides the order in which the workload arrives.
	Seed uint64
	// Zones are the names of the zones, at least two. The last of them is the one that the demo loses.
	Zones []string
}

// Validate names the first option that is out of range.
func (o Options) Validate() error {
	if !(o.Scale > 0 && o.Scale <= 1) { // also refuses NaN
		return fmt.Errorf("scale: must be above 0 and at most 1, got %v", o.Scale)
	}
	if len(o.Zones) < 2 {
		return errors.New("zones: at least two are needed, so that one can be lost")
	}
	return nil
}

// Plan is everything that the demo creates.
type Plan struct {
	Zones    []string
	Nodes    []Node
	Services []Service
	Gangs    []Gang
	// Order lists indices of Services in order of arrival.
	Order []int
	// SlotsPerZone is how many slots are held in each zone for the reserved service: as many as it must run there once a zone
	// is lost.
	SlotsPerZone int
	// Workers is the number of batch workers, which share nodes with the reserved service: more than fit beside its slots.
	Workers int
}

// NewPlan derives a plan from the embedded figures.
func NewPlan(o Options) (*Plan, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	fig, err := loadFigures()
	if err != nil {
		return nil, err
	}
	shapes := shapesOf(fig.nodes)
	plan := &Plan{Zones: slices.Clone(o.Zones), Services: mergeServices(fig.services, o.Scale)}
	// A replica that fits only on an empty node has none after a loss. No node holds two of it.
	plan.Services = slices.DeleteFunc(plan.Services, func(s Service) bool {
		return !slices.ContainsFunc(shapes, func(n shape) bool { return n.each.times(s.Each) >= 2 })
	})
	plan.Order = rand.New(rand.NewPCG(o.Seed, 0)).Perm(len(plan.Services))
	sizes, err := sizePools(shapes, len(o.Zones), plan.claims())
	if err != nil {
		return nil, fmt.Errorf("scale: %v: %w", o.Scale, err)
	}
	plan.Nodes = nodesOf(shapes, sizes, o.Zones)
	plan.share(shapes[0])
	if len(plan.Nodes) > maxNodes {
		return nil, fmt.Errorf("scale: %v: the workload needs more than %d nodes, which is what Kubernetes supports; choose a smaller scale", o.Scale, maxNodes)
	}
	plan.Gangs = gangsFor(plan.Nodes)
	return plan, nil
}

// claims returns the services in order of arrival, and the gangs that must fit.
func (p *Plan) claims() []claim {
	var claims []claim
	for _, i := range p.Order {
		if s := p.Services[i]; s.Part != Reserved {
			claims = append(claims, claim{each: s.Each, replicas: s.Replicas, maxPerNode: s.MaxPerNode, spread: true, home: homeOf(s.Each)})
		}
	}
	for _, g := range fittingGangs() {
		claims = append(claims, claim{each: g.Each, replicas: g.Members, home: homeOf(g.Each)})
	}
	return claims
}

func homeOf(each Resources) pool {
	if each.GPU > 0 {
		return gpuNodes
	}
	return cpuNodes
}

// waiting is how many batch workers there are in addition to those that fit.
const waiting = 6

// share adds the nodes that the reserved service shares with batch work: in each zone as many as its slots need, half as
// many again for batch work alone, and workers for all that is not held.
func (p *Plan) share(s shape) {
	r := p.The(Reserved)
	zones := len(p.Zones)
	p.SlotsPerZone = (r.Replicas + zones - 2) / (zones - 1)
	perNode := s.each.times(r.Each)
	if r.MaxPerNode > 0 {
		perNode = min(perNode, r.MaxPerNode)
	}
	held := (p.SlotsPerZone + perNode - 1) / perNode
	free := max(2, held/2)
	beside := s.each.add(r.Each, -int64(perNode)).times(worker)
	p.Workers = zones*(held*beside+free*s.each.times(worker)) + waiting
	for _, zone := range p.Zones {
		for i := range held + free {
			p.Nodes = append(p.Nodes, Node{Name: fmt.Sprintf("%s-shared-%03d", zone, i), Zone: zone, Instance: s.name, Shared: true, Capacity: s.each})
		}
	}
}

// The returns the service with the given part.
func (p *Plan) The(part Part) Service {
	return p.Services[slices.IndexFunc(p.Services, func(s Service) bool { return s.Part == part })]
}

// Replicas returns the number of pods of all services.
func (p *Plan) Replicas() int {
	total := 0
	for _, s := range p.Services {
		total += s.Replicas
	}
	return total
}

// LostZone returns the zone that the demo loses.
func (p *Plan) LostZone() string { return p.Zones[len(p.Zones)-1] }
