// Package trace makes the clusters of the benchmarks about survival: the CPU services of a production trace
// (demo/workload/data) on nodes of a trace's sizes, in the zones a, b and c, which have 50, 30 and 20 percent of the
// nodes.
package trace

import (
	"fmt"
	"math"
	"math/rand/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/demo/workload"
)

// Options choose a Cluster.
type Options struct {
	// Nodes is how many nodes there are, Times how many times as large as those of the trace they are.
	Nodes, Times int
	// Load is the part of the CPU or of the memory, whichever is more, that the services ask for.
	Load float64
	// Seed decides which nodes are in which zone, and the order of the services.
	Seed uint64
	// Services, if not 0, is how many services there are, and Pods how many replicas all have, each at least one. Those
	// beyond the trace's own are drawn from these, with replacement. Times is not used then: the nodes are as large as
	// Load says.
	Services, Pods int
}

// Cluster has nodes, and services that are still to be placed.
type Cluster struct {
	Nodes    []workload.Node
	Services []workload.Service // of these only Each and Replicas, and what names them
	// Total is what the nodes have, Asked what all replicas ask for.
	Total, Asked workload.Resources
}

// shapes are the six most common nodes without devices of the trace: CPUs, GiB, and how many there are.
var shapes = [][3]int{{32, 256, 129}, {96, 512, 59}, {96, 384, 30}, {32, 128, 23}, {64, 512, 22}, {104, 512, 20}}

// New makes a cluster.
func New(o Options) *Cluster {
	plan := workload.NewPlan(0.05, o.Seed)
	c := &Cluster{}
	c.addNodes(o)
	var instances workload.Resources
	for _, s := range plan.Services {
		if s.Role == "cn" {
			c.Services = append(c.Services, s)
			plus(&instances, s.Each, s.Instances)
		}
	}
	if o.Services > 0 {
		c.drawServices(o)
		c.sizeNodes(o.Load)
		return c
	}
	share := func(of int) float64 { return float64(c.Total[of]) / float64(instances[of]) }
	scale := o.Load * min(share(workload.CPU), share(workload.Memory))
	for i := range c.Services {
		s := &c.Services[i]
		s.Replicas = int(math.Round(float64(s.Instances) * scale))
		plus(&c.Asked, s.Each, s.Replicas)
	}
	return c
}

// drawServices makes the services and the pods as many as the options say. The pods are shared by the instances of the
// trace.
func (c *Cluster) drawServices(o Options) {
	r, traced := rand.New(rand.NewPCG(o.Seed, 5)), len(c.Services)
	for len(c.Services) < o.Services {
		s := c.Services[r.IntN(traced)]
		s.App = fmt.Sprintf("%s-%d", s.App, len(c.Services))
		c.Services = append(c.Services, s)
	}
	c.Services = c.Services[:o.Services]
	instances := 0
	for i := range c.Services {
		c.Services[i].Replicas = 1
		instances += c.Services[i].Instances
	}
	for range o.Pods - o.Services { // to the service that is furthest behind its share
		behind := func(i int) int { return c.Services[i].Instances*o.Pods - c.Services[i].Replicas*instances }
		next := 0
		for i := range c.Services {
			if behind(i) > behind(next) {
				next = i
			}
		}
		c.Services[next].Replicas++
	}
	for _, s := range c.Services {
		plus(&c.Asked, s.Each, s.Replicas)
	}
}

// sizeNodes makes the nodes so large that the services ask for that part of the CPU or of the memory, whichever is
// more.
func (c *Cluster) sizeNodes(load float64) {
	part := func(of int) float64 { return float64(c.Asked[of]) / float64(c.Total[of]) }
	times := max(part(workload.CPU), part(workload.Memory)) / load
	c.Total = workload.Resources{}
	for i := range c.Nodes {
		for of := range c.Nodes[i].Capacity {
			c.Nodes[i].Capacity[of] = int64(float64(c.Nodes[i].Capacity[of]) * times)
		}
		plus(&c.Total, c.Nodes[i].Capacity, 1)
	}
}

func (c *Cluster) addNodes(o Options) {
	if o.Services > 0 {
		o.Times = 1
	}
	all := 0
	for _, s := range shapes {
		all += s[2]
	}
	for i, at := range rand.New(rand.NewPCG(o.Seed, 3)).Perm(o.Nodes) {
		pick, shape := i*all/o.Nodes, shapes[0]
		for _, s := range shapes {
			if shape = s; pick < s[2] {
				break
			}
			pick -= s[2]
		}
		zone := "c"
		if at < o.Nodes/2 {
			zone = "a"
		} else if at < o.Nodes*8/10 {
			zone = "b"
		}
		node := workload.Node{Name: fmt.Sprintf("%s-%03d", zone, at), Zone: zone}
		node.Instance = fmt.Sprintf("cpu-%dc-%dg", shape[0]*o.Times, shape[1]*o.Times)
		node.Capacity[workload.CPU] = int64(shape[0] * o.Times * 1000)
		node.Capacity[workload.Memory] = int64(shape[1] * o.Times * 1024)
		plus(&c.Total, node.Capacity, 1)
		c.Nodes = append(c.Nodes, node)
	}
}

// Shares are the zones of a ZoneSpreadPolicy that gives each zone the share of its nodes.
func Shares() []v1alpha1.ZoneSpreadZone {
	five, three, two := int32(5), int32(3), int32(2)
	return []v1alpha1.ZoneSpreadZone{{Name: "a", Weight: &five}, {Name: "b", Weight: &three}, {Name: "c", Weight: &two}}
}

// Replicas is how many pods all services have.
func (c *Cluster) Replicas() int {
	n := 0
	for _, s := range c.Services {
		n += s.Replicas
	}
	return n
}

func plus(sum *workload.Resources, each workload.Resources, n int) {
	for i := range sum {
		sum[i] += each[i] * int64(n)
	}
}
