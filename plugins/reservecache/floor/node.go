package floor

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Node is what a Floor is told of a node.
type Node struct {
	Object *v1.Node
	// Generation names this state of the node, for [Floor.Fit].
	Generation int64
	// Allocatable is what the node offers, and Requested what its pods ask for, their number in Pods.
	Allocatable, Requested ledger.Resources
	// Nominated is what the pods ask for that are nominated to the node. No slot is placed there, and none is given up
	// for it: their victims may not have left yet.
	Nominated ledger.Resources
	// Owned is what the owners of each claim on the node ask for, their number in Pods; nil for none.
	Owned map[types.UID]ledger.Resources
}

// node is a node with what is held there.
type node struct {
	name       string
	zone       *zone
	object     *v1.Node
	generation int64
	// allocatable is what the node offers, free what pods leave of it, and nominated what nominated pods will take.
	allocatable, free, nominated ledger.Resources
	// held is the sum of what is held unused, and lowest the lowest priority of the claims that hold something.
	held   ledger.Resources
	lowest int32
	// room is what nominations leave of what pods and slots leave: room for more slots.
	room ledger.Resources
	// holdings are those of claims that hold something, or have owners here.
	holdings []*holding
	// gained means that it is in Floor.gained.
	gained bool
	// version is the floor's when something else was held here last.
	version uint64
}

// zone is the nodes of one zone.
type zone struct {
	name  string
	nodes map[string]*node
	// allocatable and held are the sums over its nodes.
	allocatable, held ledger.Resources
	// capped are the claims that the limit keeps from slots here.
	capped map[*claimState]bool
}

// Update takes in a node that is new or has changed. Slots for which it has no room any more go, and those that may not
// be there.
func (f *Floor) Update(in *Node) {
	name, zoneName := in.Object.Name, in.Object.Labels[v1.LabelTopologyZone]
	n := f.nodes[name]
	if n != nil && n.zone.name != zoneName {
		f.Remove(name)
		n = nil
	}
	fresh := n == nil
	if fresh {
		n = &node{name: name, zone: f.zoneOf(zoneName)}
		f.nodes[name], n.zone.nodes[name] = n, n
	}
	before := n.room
	changed := fresh || n.object != in.Object && !ledger.SameForPods(n.object, in.Object)
	if fresh || !n.allocatable.Equal(&in.Allocatable) {
		n.zone.allocatable.Add(&in.Allocatable, 1)
		n.zone.allocatable.Add(&n.allocatable, -1)
		f.uncap(n.zone)
		changed = true
	}
	n.object, n.generation, n.allocatable = in.Object, in.Generation, in.Allocatable.Clone()
	n.free, n.nominated = in.Allocatable.Minus(&in.Requested), in.Nominated.Clone()
	n.setRoom()
	f.setOwned(n, in.Owned)
	if changed {
		f.nodesChanged = true
		f.dropUnfit(n)
	}
	f.dropCrowded(n)
	f.dropExcess(n, nil)
	if changed || n.room.Exceeds(&before) != "" {
		f.markGained(n)
	}
}

// Remove forgets a node, and the slots there.
func (f *Floor) Remove(name string) {
	n := f.nodes[name]
	if n == nil {
		return
	}
	for len(n.holdings) > 0 {
		h := n.holdings[0]
		f.change(h, func() { h.slots, h.former, h.used, h.owned = 0, nil, 0, ledger.Resources{} })
	}
	n.zone.allocatable.Add(&n.allocatable, -1)
	delete(f.nodes, name)
	delete(n.zone.nodes, name)
	if len(n.zone.nodes) == 0 {
		delete(f.zones, n.zone.name)
	}
	f.nodesChanged = true
}

// zoneOf returns the zone of that name, which may be new.
func (f *Floor) zoneOf(name string) *zone {
	z := f.zones[name]
	if z == nil {
		z = &zone{name: name, nodes: map[string]*node{}, capped: map[*claimState]bool{}}
		f.zones[name] = z
	}
	return z
}

// left is what pods and slots leave of a node; less than nothing where there are too many.
func (n *node) left() ledger.Resources { return n.free.Minus(&n.held) }

// setRoom is called when what it follows from has changed: to search a zone asks each node for its room.
func (n *node) setRoom() {
	left := n.left()
	n.room = left.Minus(&n.nominated)
}

// holding returns what a claim has on a node, or nil.
func (n *node) holding(c *claimState) *holding {
	if len(n.holdings) < 8 {
		for _, h := range n.holdings {
			if h.claim == c {
				return h
			}
		}
		return nil
	}
	return c.holdings[n]
}

// setOwned takes in what the owners of claims on a node ask for.
func (f *Floor) setOwned(n *node, owned map[types.UID]ledger.Resources) {
	for _, h := range slices.Backward(slices.Clone(n.holdings)) { // a holding of nothing goes
		now := owned[h.claim.UID]
		if !h.owned.Equal(&now) {
			f.change(h, func() { h.setOwned(&now) })
		}
	}
	for uid, now := range owned {
		if c := f.byUID[uid]; c != nil && n.holding(c) == nil && now.Pods > 0 {
			h := f.newHolding(c, n)
			f.change(h, func() { h.setOwned(&now) })
		}
	}
}

// dropUnfit takes away the slots of claims that may not have any on a node.
func (f *Floor) dropUnfit(n *node) {
	for _, h := range slices.Backward(slices.Clone(n.holdings)) {
		if h.slots > 0 && !h.claim.Nodes.MetBy(n.object) {
			f.change(h, func() { h.slots = 0 })
		}
		if len(h.former) > 0 {
			f.change(h, func() { h.dropFormer(func(k *formerSlots) bool { return !k.nodes.MetBy(n.object) }) })
		}
	}
}

// dropCrowded takes away slots of headroom on a node that has more owners beside them than it may have slots.
func (f *Floor) dropCrowded(n *node) {
	for _, h := range n.holdings {
		if over := h.slots + h.beside() - h.claim.PerNode; h.claim.PerNode > 0 && h.slots > 0 && over > 0 && h.beside() > 0 {
			f.change(h, func() { h.slots -= min(h.slots, over) })
		}
	}
}

// dropExcess takes away what has no room any more: that of the lowest priority first, as Fit lets a pod take what it
// outranks. With a pod it takes only what that may use.
func (f *Floor) dropExcess(n *node, pod *Pod) {
	for {
		left := n.left()
		if !left.Negative(&n.held) {
			return
		}
		var last *holding
		for _, h := range n.holdings {
			if (pod == nil || h.claim.yieldsTo(pod)) && h.frees(&left) && (last == nil || h.goesBefore(last)) {
				last = h
			}
		}
		if last == nil {
			return
		}
		f.change(last, func() { last.dropOne() })
	}
}

// Take has an owner of headroom that has been given a node take slots there that it may use, as far as it needs their
// room. Nothing on the node tells later which slots have been used, so the next Update would take away those of the
// youngest claim. Owners of an inclusive claim are counted on their node, and with them their slots.
func (f *Floor) Take(pod *Pod, nodeName string) {
	n, own := f.nodes[nodeName], f.byUID[pod.Claim]
	if n == nil || own == nil || own.Inclusive {
		return
	}
	before := n.room
	n.free = n.free.Minus(&pod.Request)
	n.setRoom()
	f.dropExcess(n, pod)
	if n.room.Exceeds(&before) != "" {
		f.markGained(n)
	}
}

// markGained has Settle offer the room of a node to claims that lack slots.
func (f *Floor) markGained(n *node) {
	if !n.gained {
		n.gained = true
		f.gained = append(f.gained, n)
	}
}
