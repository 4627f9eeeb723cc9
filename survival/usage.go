package survival

import (
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/amount"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/sim"
)

// usage is what the usable nodes of a cluster have and what pods take of it. It is computed once, and then adjusted for
// each loss.
type usage struct {
	nodes map[string]*nodeUsage
	zones map[string]*room
}

type nodeUsage struct {
	zone              string
	allocatable, used ledger.Resources
}

// free is what no pod asks for, when the pods of the node ask for so much.
func (n *nodeUsage) free(used *ledger.Resources) ledger.Resources {
	free := n.allocatable.Minus(used)
	return free.Positive()
}

// room is what the usable nodes of a zone have.
type room struct {
	nodes             int
	free, allocatable ledger.Resources
}

func (r *room) addNode(n *nodeUsage, times int64) {
	free := n.free(&n.used)
	r.nodes += int(times)
	r.free.Add(&free, times)
	r.allocatable.Add(&n.allocatable, times)
}

func usageOf(nodes []*v1.Node, pods []*v1.Pod) *usage {
	u := &usage{nodes: map[string]*nodeUsage{}, zones: map[string]*room{}}
	for _, node := range nodes {
		if usable(node) {
			u.nodes[node.Name] = &nodeUsage{
				zone: node.Labels[v1.LabelTopologyZone], allocatable: ledger.ResourcesOf(node.Status.Allocatable),
			}
		}
	}
	for _, pod := range pods {
		if n := u.nodes[pod.Spec.NodeName]; n != nil && !ended(pod) {
			request := footprintOf(pod)
			n.used.Add(&request, 1)
		}
	}
	for _, n := range u.nodes {
		if u.zones[n.zone] == nil {
			u.zones[n.zone] = &room{}
		}
		u.zones[n.zone].addNode(n, 1)
	}
	return u
}

// afterChanges returns what the zones have after changes. Zones without usable nodes are left out.
func (u *usage) afterChanges(nodes []sim.Change[*v1.Node], pods []sim.Change[*v1.Pod]) map[string]*room {
	rooms := make(map[string]*room, len(u.zones))
	for zone, now := range u.zones {
		rooms[zone] = &room{nodes: now.nodes, free: now.free.Clone(), allocatable: now.allocatable.Clone()}
	}
	lost := map[string]bool{}
	for _, c := range nodes {
		if c.Before == nil || c.After != nil && usable(c.After) {
			continue
		}
		if n := u.nodes[c.Before.Name]; n != nil {
			lost[c.Before.Name] = true
			rooms[n.zone].addNode(n, -1)
		}
	}
	used := map[string]ledger.Resources{}
	count := func(pod *v1.Pod, times int64) {
		if pod == nil || ended(pod) || u.nodes[pod.Spec.NodeName] == nil || lost[pod.Spec.NodeName] {
			return
		}
		sum, noted := used[pod.Spec.NodeName]
		if !noted {
			sum = u.nodes[pod.Spec.NodeName].used.Clone()
		}
		request := footprintOf(pod)
		sum.Add(&request, times)
		used[pod.Spec.NodeName] = sum
	}
	for _, c := range pods {
		count(c.Before, -1)
		count(c.After, 1)
	}
	for name, now := range used {
		n := u.nodes[name]
		before, after := n.free(&n.used), n.free(&now)
		rooms[n.zone].free.Add(&before, -1)
		rooms[n.zone].free.Add(&after, 1)
	}
	for zone, r := range rooms {
		if r.nodes == 0 {
			delete(rooms, zone)
		}
	}
	return rooms
}

// marginOf returns what there is of some resources.
func (r *room) marginOf(zone string, resources map[v1.ResourceName]bool) v1alpha1.SurvivalMargin {
	m := v1alpha1.SurvivalMargin{Zone: zone, Free: v1.ResourceList{}, Allocatable: v1.ResourceList{}}
	for name := range resources {
		if n := r.allocatable.Amount(name); n > 0 {
			m.Free[name], m.Allocatable[name] = *amount.Quantity(name, r.free.Amount(name)), *amount.Quantity(name, n)
		}
	}
	return m
}

// footprintOf is what a pod takes of a node.
func footprintOf(pod *v1.Pod) ledger.Resources {
	r := ledger.ResourcesOf(requestsOf(pod))
	r.Pods = 1
	return r
}
