package workload

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

//go:embed data/services.csv
var servicesCSV string

//go:embed data/nodes.csv
var nodesCSV string

// The trace's population: every instance that it lists, and how many of them were alive at one moment (data/README.md).
const (
	tracedInstances = 23871
	liveInstances   = 8900
)

// largest is the largest CPU instance that is not split: what the most common CPU node of the node trace holds.
var largest = Resources{CPU: 32_000, Memory: 256 << 10}

// line is a line of a table, by column.
type line map[string]string

// linesOf returns the lines of an embedded file.
func linesOf(text string) []line {
	records, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	utilruntime.Must(err) // the files do not change, and the tests read them
	lines := make([]line, 0, len(records))
	for _, record := range records[1:] {
		l := line{}
		for i, column := range records[0] {
			l[column] = record[i]
		}
		lines = append(lines, l)
	}
	return lines
}

// number returns a column in the given unit, rounded to a whole number.
func (l line) number(column string, unit float64) int64 {
	value, err := strconv.ParseFloat(l[column], 64)
	utilruntime.Must(err) // see table
	return int64(math.Round(value * unit))
}

// servicesOf returns the services of the trace in the order of its file. Lines of one service and role are joined under
// the shape that most of its instances have, and what no node can hold is split.
func servicesOf(lines []line, scale float64) []Service {
	var out []Service
	instances := map[Service]int{} // of each service and shape
	for _, l := range lines {
		given := Service{App: strings.ReplaceAll(l["app"], "_", "-"), Role: strings.ToLower(l["role"])}
		at := slices.IndexFunc(out, func(s Service) bool { return s.Name() == given.Name() })
		if at < 0 {
			at, out = len(out), append(out, given)
		}
		given.MaxPerNode = int(max(0, l.number("max_per_node", 1)))
		given.Each = Resources{
			CPU: l.number("cpu", 1000), Memory: l.number("memory_gib", 1024), GPU: l.number("gpu", 1),
			RDMA: l.number("rdma_percent", 1), Disk: l.number("disk_gib", 1),
		}
		s, n := &out[at], int(l.number("instances", 1))
		s.Instances += n
		instances[given] += n
		if instances[given] > instances[Service{App: s.App, Role: s.Role, Each: s.Each, MaxPerNode: s.MaxPerNode}] {
			s.Each, s.MaxPerNode = given.Each, given.MaxPerNode
		}
	}
	for i := range out {
		s := &out[i]
		s.split()
		s.Replicas = max(1, int(math.Round(float64(s.Instances)*liveInstances/tracedInstances*scale)))
		if s.Weighted() || s.Shared() {
			s.Replicas = max(fewest, s.Replicas)
		}
	}
	return out
}

// split divides a CPU instance that the most common CPU node of the node trace cannot hold into equal parts, and
// multiplies the instances and the limit per node accordingly. An instance with a device is not split.
func (s *Service) split() {
	parts := max(ceilDiv(s.Each[CPU], largest[CPU]), ceilDiv(s.Each[Memory], largest[Memory]))
	if s.Each.HasGPU() || parts <= 1 {
		return
	}
	for i := range s.Each {
		s.Each[i] = ceilDiv(s.Each[i], parts)
	}
	s.MaxPerNode *= int(parts)
	s.Instances *= int(parts)
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// Assumptions about hardware that the node trace does not describe.
const (
	nodeDiskGiB   = 7680
	gpusPerCard   = 2
	percentOfCard = 100
)

// Shape is a kind of node.
type Shape struct {
	// Instance names it, and Model its devices, "" for none.
	Instance, Model string
	Capacity        Resources
	count           int // nodes of this shape in the trace
}

// pool has the shapes of nodes without devices, or of those with devices. The numbers of the two are chosen separately.
type pool []Shape

// poolsOf returns the pool without devices and the one with devices, each with the most common shape first.
func poolsOf(lines []line) [2]pool {
	var out [2]pool
	for _, l := range lines {
		s := Shape{Model: l["gpu_model"], count: int(l.number("nodes", 1)), Capacity: Resources{
			CPU: l.number("cpu_milli", 1), Memory: l.number("memory_mib", 1), GPU: l.number("gpus", 1), Disk: nodeDiskGiB,
		}}
		s.Capacity[RDMA] = percentOfCard * max(1, s.Capacity[GPU]/gpusPerCard)
		s.Instance = fmt.Sprintf("%dc-%dg", s.Capacity[CPU]/1000, s.Capacity[Memory]/1024)
		if s.Model == "" {
			s.Instance = "cpu-" + s.Instance
		} else {
			s.Instance = fmt.Sprintf("%s-%dx-%s", strings.ToLower(s.Model), s.Capacity[GPU], s.Instance)
		}
		home := poolIndex(s.Capacity)
		out[home] = append(out[home], s)
	}
	for _, p := range out {
		slices.SortStableFunc(p, func(a, b Shape) int { return cmp.Compare(b.count, a.count) })
	}
	return out
}

// poolIndex returns the index of the pool for which the resources are.
func poolIndex(each Resources) int {
	if each.HasGPU() {
		return 1
	}
	return 0
}

// nodeMix returns n nodes of a pool in the trace's proportion: each next one is of the shape that is furthest behind
// its share.
func (p pool) nodeMix(n int) []Shape {
	total := 0
	for _, s := range p {
		total += s.count
	}
	have := make([]int, len(p))
	out := make([]Shape, 0, n)
	for len(out) < n {
		behind := func(i int) int { return p[i].count*(len(out)+1) - have[i]*total }
		next := 0
		for i := range p {
			if behind(i) > behind(next) {
				next = i
			}
		}
		have[next]++
		out = append(out, p[next])
	}
	return out
}
