package workload

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// The trace's population: every instance that it lists, and how many of them
// were alive at one moment (data/README.md).
const (
	tracedInstances = 23871
	liveInstances   = 8900
)

// The largest CPU instance that is not split: what the most common CPU node of
// the node trace holds.
const (
	largestMilliCPU  = 32_000
	largestMemoryMiB = 256 * 1024
)

// Part says what a service shows in the demo.
type Part int

const (
	// Native services are spread by topologySpreadConstraints. Most are.
	Native Part = iota
	// Weighted is spread by a ZoneSpreadPolicy with a share for each zone.
	Weighted
	// Reserved has a ZoneReservation, and shares its nodes with batch work.
	Reserved
)

// parts are the services that are not Native. Both are in the traces, whatever the scale; the first has a share per zone
// because devices are not everywhere alike, the second leaves a quarter of a node to others.
var parts = map[string]Part{"app-0-hn": Weighted, "app-14-cn": Reserved}

// fewest is the minimum of replicas of such a service, so that there are some in each zone.
const fewest = 6

// Service is one role of one service: a Deployment of the demo.
type Service struct {
	// App is the service, for example app-12. Each has one or two roles.
	App string
	// Role is the side that this Deployment plays.
	Role Role
	// Each is what one replica requests.
	Each Resources
	// MaxPerNode is the most replicas on one node; 0 means no limit.
	MaxPerNode int
	// Instances is how many the trace lists, counting each part of a split
	// instance.
	Instances int
	// Replicas is how many the demo runs.
	Replicas int
	// Part is what it shows in the demo.
	Part Part
}

// Name is the Deployment's name.
func (s Service) Name() string { return s.App + "-" + string(s.Role) }

// mergeServices joins the lines of one service and role under the shape that
// most of its instances have (the first of them in the file on a tie), splits
// what no node can hold, and scales the number of replicas. The result is
// ordered by the size of the service in the trace, largest first.
func mergeServices(lines []serviceLine, scale float64) []Service {
	type key struct {
		app  string
		role Role
	}
	type shape struct {
		each       Resources
		maxPerNode int
	}
	var order []key
	shapes := map[key]map[shape]int{}
	first := map[key][]shape{}
	for _, line := range lines {
		k := key{line.app, line.role}
		if shapes[k] == nil {
			order = append(order, k)
			shapes[k] = map[shape]int{}
		}
		s := shape{line.each, line.maxPerNode}
		if _, seen := shapes[k][s]; !seen {
			first[k] = append(first[k], s)
		}
		shapes[k][s] += line.instances
	}
	services := make([]Service, 0, len(order))
	appSize := map[string]int{}
	for _, k := range order {
		best, total := first[k][0], 0
		for _, s := range first[k] {
			total += shapes[k][s]
			if shapes[k][s] > shapes[k][best] {
				best = s
			}
		}
		service := split(Service{
			App:        strings.ReplaceAll(k.app, "_", "-"),
			Role:       k.role,
			Each:       best.each,
			MaxPerNode: best.maxPerNode,
			Instances:  total,
		})
		service.Replicas = max(1, int(math.Round(float64(service.Instances)*liveInstances/tracedInstances*scale)))
		if service.Part = parts[service.Name()]; service.Part != Native {
			service.Replicas = max(fewest, service.Replicas)
		}
		services = append(services, service)
		appSize[service.App] += service.Instances
	}
	slices.SortStableFunc(services, func(a, b Service) int {
		return cmp.Or(cmp.Compare(appSize[b.App], appSize[a.App]), compareApps(a.App, b.App), cmp.Compare(a.Role, b.Role))
	})
	return services
}

// compareApps orders app-9 before app-10.
func compareApps(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// split divides a CPU instance that the most common CPU node of the node trace
// cannot hold into equal parts, and multiplies the instances and the limit per
// node accordingly. An instance with a device is not split.
func split(s Service) Service {
	if s.Each.GPU > 0 {
		return s
	}
	parts := max(ceilDiv(s.Each.MilliCPU, largestMilliCPU), ceilDiv(s.Each.MemoryMiB, largestMemoryMiB))
	if parts <= 1 {
		return s
	}
	s.Each = Resources{
		MilliCPU:    ceilDiv(s.Each.MilliCPU, parts),
		MemoryMiB:   ceilDiv(s.Each.MemoryMiB, parts),
		RDMAPercent: ceilDiv(s.Each.RDMAPercent, parts),
		DiskGiB:     ceilDiv(s.Each.DiskGiB, parts),
	}
	s.MaxPerNode *= int(parts)
	s.Instances *= int(parts)
	return s
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
