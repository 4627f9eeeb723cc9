package workload

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// DemoScale is the demo's share of the trace's live population: about 500 pods on as many nodes.
const DemoScale = 0.02

// Zones are the demo's zones, which the policy names. It loses the last.
var Zones = []string{"zone-a", "zone-b", LostZone}

// LostZone is the zone that the demo loses.
const LostZone = "zone-c"

// The services with a part of their own. The first has a share per zone because
// devices are not everywhere alike, the second leaves a quarter of a node to others.
const (
	weighted = "app-0-hn"  // has a ZoneSpreadPolicy with a share for each zone
	sharing  = "app-14-cn" // shares its nodes with batch work
)

// DefaultPolicyApp is a service whose constraints have the default nodeTaintsPolicy, Ignore: they count the nodes of a
// lost zone for as long as these exist.
const DefaultPolicyApp = "app-20"

// fewest is the minimum of replicas of such a service, so that there are some in each zone.
const fewest = 6

// worker is what a batch worker requests. The trace has none; this one is made up.
var worker = Resources{CPU: 8000, Memory: 32 << 10}

// Plan is everything that the demo creates.
type Plan struct {
	Nodes []Node
	// Services are in order of arrival.
	Services []Service
	Gangs    []Gang
	// Workers is the number of batch workers: as many as fit on the shared nodes while no replica is there, and so more
	// than fit.
	Workers int
}

// Node is one node of the demo.
type Node struct {
	Name, Zone string
	// Shared nodes are for one service and batch work only.
	Shared bool
	Shape
}

// Service is one side of one service: a Deployment of the demo.
type Service struct {
	// App is the service, for example app-12. Each has one or two roles: "cn" instances have no device, "hn" instances
	// do.
	App, Role string
	// Each is what one replica requests.
	Each Resources
	// MaxPerNode is the most replicas on one node; 0 means no limit.
	MaxPerNode int
	// Instances is how many the trace lists, counting each part of a split instance.
	Instances int
	// Replicas is how many the demo runs.
	Replicas int
	// Domains is above the number of nodes.
	Domains int
}

// Name is the Deployment's name.
func (s Service) Name() string { return s.App + "-" + s.Role }

// Labels are the Deployment's and its pods'.
func (s Service) Labels() map[string]string {
	return map[string]string{AppLabel: s.App, RoleLabel: s.Role}
}

// Weighted reports whether a ZoneSpreadPolicy spreads the service.
func (s Service) Weighted() bool { return s.Name() == weighted }

// Shared reports whether the service shares its nodes with batch work.
func (s Service) Shared() bool { return s.Name() == sharing }

// DefaultPolicy reports whether the service's constraints have the default nodeTaintsPolicy.
func (s Service) DefaultPolicy() bool { return s.App == DefaultPolicyApp }

// Gang is a PodGroup and the StatefulSet whose pods are its members. The traces have no gangs; these are made up.
type Gang struct {
	Name string
	// Members is the number of pods and the group's minMember.
	Members int
	// Each is what one member requests.
	Each Resources
	// Fits is true when the nodes are chosen so that the whole gang fits beside everything else. The demo has one gang
	// that can never fit: it must wait and hold nothing.
	Fits bool
}

// Key is "namespace/name" of the PodGroup.
func (g Gang) Key() string { return GangNamespace + "/" + g.Name }

// fitting are the gangs that count when the nodes are chosen.
var fitting = []Gang{
	{Name: "train-ranker", Fits: true, Members: 12, Each: Resources{CPU: 4000, Memory: 24 << 10, GPU: 1}},
	{Name: "train-embeddings", Fits: true, Members: 16, Each: Resources{CPU: 14_000, Memory: 56 << 10}},
	{Name: "finetune", Fits: true, Members: 6, Each: Resources{CPU: 16_000, Memory: 96 << 10, GPU: 2}},
	{Name: "evaluate", Fits: true, Members: 9, Each: Resources{CPU: 28_000, Memory: 112 << 10}},
}

// NewPlan derives a plan from the embedded figures. scale is the share of the trace's live population, and seed decides
// the order in which the workload arrives.
func NewPlan(scale float64, seed uint64) *Plan {
	pools := poolsOf(linesOf(nodesCSV))
	// A replica that fits only on an empty node has none after a loss. No node holds two of it.
	plan := &Plan{Services: slices.DeleteFunc(servicesOf(linesOf(servicesCSV), scale), func(s Service) bool {
		return !slices.ContainsFunc(slices.Concat(pools[:]...), func(n Shape) bool { return n.Capacity.countOf(s.Each) >= 2 })
	})}
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(plan.Services), func(i, j int) {
		plan.Services[i], plan.Services[j] = plan.Services[j], plan.Services[i]
	})
	for _, s := range zoneNodes(pools, len(Zones), plan.claims()) {
		plan.addNodes(s, strings.ToLower(cmp.Or(s.Model, "cpu")), false)
	}
	plan.addSharedNodes(pools[0][0])
	for i := range plan.Services {
		plan.Services[i].Domains = len(plan.Nodes) + 1
	}
	plan.Gangs = append(slices.Clone(fitting), plan.tooLarge())
	return plan
}

// addNodes adds a node of a shape to each zone, with names that begin with the zone and the given word.
func (p *Plan) addNodes(s Shape, word string, shared bool) {
	for i, zone := range Zones {
		name := fmt.Sprintf("%s-%s-%03d", zone, word, (len(p.Nodes)-i)/len(Zones))
		p.Nodes = append(p.Nodes, Node{Name: name, Zone: zone, Shared: shared, Shape: s})
	}
}

// claims returns the services and the gangs that must fit.
func (p *Plan) claims() []claim {
	var claims []claim
	for _, s := range p.Services {
		if !s.Shared() {
			claims = append(claims, claim{each: s.Each, replicas: s.Replicas, maxPerNode: s.MaxPerNode})
		}
	}
	for _, g := range fitting {
		claims = append(claims, claim{each: g.Each, replicas: g.Members})
	}
	return claims
}

// addSharedNodes adds the nodes that a service shares with batch work: in each zone as many as it needs once a zone is
// lost, and half as many again.
func (p *Plan) addSharedNodes(s Shape) {
	service := p.Shared()
	perNode := s.Capacity.countOf(service.Each)
	if service.MaxPerNode > 0 {
		perNode = min(perNode, service.MaxPerNode)
	}
	left := (len(Zones) - 1) * perNode
	needed := (service.Replicas + left - 1) / left
	for range needed + max(2, needed/2) {
		p.addNodes(s, "shared", true)
		p.Workers += len(Zones) * s.Capacity.countOf(worker)
	}
}

// tooLarge returns a gang that does not fit. It asks for whole nodes with the most devices that there are: one more of
// them than exist, so that in an empty cluster all but one of its members would find room. A scheduler that looks at
// pods one at a time would bind those.
func (p *Plan) tooLarge() Gang {
	g := Gang{Name: "train-too-large", Members: 1, Each: Resources{CPU: 1000, Memory: 4 << 10}}
	for _, n := range p.Nodes {
		g.Each[GPU] = max(g.Each[GPU], n.Capacity[GPU])
	}
	for _, n := range p.Nodes {
		if n.Capacity.fits(g.Each) {
			g.Members++
		}
	}
	return g
}

// Weighted returns the service with the ZoneSpreadPolicy.
func (p *Plan) Weighted() Service { return p.serviceThat(Service.Weighted) }

// Shared returns the service on the shared nodes.
func (p *Plan) Shared() Service { return p.serviceThat(Service.Shared) }

// serviceThat returns the first service of which a condition is true.
func (p *Plan) serviceThat(condition func(Service) bool) Service {
	return p.Services[slices.IndexFunc(p.Services, condition)]
}

// Replicas returns the number of pods of all services.
func (p *Plan) Replicas() int {
	total := 0
	for _, s := range p.Services {
		total += s.Replicas
	}
	return total
}
