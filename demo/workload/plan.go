package workload

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// DefaultScale is the share of the trace's live population that the demo runs
// unless it is told otherwise: about a thousand pods on as many nodes, a
// minute on two idle cores and two on busy ones.
const DefaultScale = 0.05

// The bounds of Options.Nodes; the upper one is Kubernetes' own.
const (
	minNodes = 6
	maxNodes = 5000
)

// Options choose a Plan.
type Options struct {
	// Scale is the share of the trace's live population, above 0, at most 1.
	Scale float64
	// Nodes is the number of nodes; 0 lets the workload decide. It is
	// rounded down to a multiple of the number of zones.
	Nodes int
	// Seed decides the order in which the workload arrives.
	Seed uint64
	// Zones are the names of the zones, at least two. The last of them is
	// the one that the demo loses.
	Zones []string
}

// Validate names the first option that is out of range.
func (o Options) Validate() error {
	if err := scaleError(o.Scale); err != nil {
		return err
	}
	if o.Nodes != 0 && (o.Nodes < minNodes || o.Nodes > maxNodes) {
		return fmt.Errorf("nodes: must be 0 or between %d and %d, got %d", minNodes, maxNodes, o.Nodes)
	}
	if len(o.Zones) < 2 {
		return errors.New("zones: at least two are needed, so that one can be lost")
	}
	for i, zone := range o.Zones {
		if zone == "" || slices.Contains(o.Zones[:i], zone) {
			return fmt.Errorf("zones: %q is empty or named twice", zone)
		}
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
	// FitsAfterLoss says whether the nodes were chosen so that everything
	// fits with one zone lost. It is false when Options.Nodes decided.
	FitsAfterLoss bool
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
	plan := &Plan{Zones: slices.Clone(o.Zones), Services: mergeServices(fig.services, o.Scale), FitsAfterLoss: o.Nodes == 0}
	plan.Order = rand.New(rand.NewPCG(o.Seed, 0)).Perm(len(plan.Services))

	var sizes poolSizes
	if o.Nodes != 0 {
		sizes = share(lowerBound(shapes, len(o.Zones), plan.claims()), o.Nodes, len(o.Zones))
	} else if sizes, err = sizePools(shapes, len(o.Zones), plan.claims()); err != nil {
		return nil, fmt.Errorf("scale: %v: %w", o.Scale, err)
	}
	plan.Nodes = nodesOf(shapes, sizes, o.Zones)
	plan.Gangs = gangsFor(plan.Nodes, plan.FitsAfterLoss)
	return plan, nil
}

// claims are the services in order of arrival, and the gangs that must fit.
func (p *Plan) claims() []claim {
	var claims []claim
	for _, i := range p.Order {
		s := p.Services[i]
		home := cpuNodes
		if s.Role == GPURole {
			home = gpuNodes
		}
		claims = append(claims, claim{each: s.Each, replicas: s.Replicas, maxPerNode: s.MaxPerNode, spread: true, home: home})
	}
	for _, g := range fittingGangs() {
		home := cpuNodes
		if g.Each.GPU > 0 {
			home = gpuNodes
		}
		claims = append(claims, claim{each: g.Each, replicas: g.Members, home: home})
	}
	return claims
}

// Replicas is the number of pods of all services.
func (p *Plan) Replicas() int {
	total := 0
	for _, s := range p.Services {
		total += s.Replicas
	}
	return total
}

// LostZone is the zone that the demo drains.
func (p *Plan) LostZone() string { return p.Zones[len(p.Zones)-1] }
