package counts

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Limits bound the memory of an Index beyond what the pods and nodes themselves need.
type Limits struct {
	// Selectors is how many selectors are counted at most.
	Selectors int
	// Cells is how many pairs of a selector and a node with matching pods are kept at most; each takes 8
	// bytes.
	Cells int
	// IdleQueries is after how many queries a selector that none of them used is dropped.
	IdleQueries uint64
	// ClassBytes is how much memory the sets of eligible nodes take at most; a set takes 4 bytes per node and 8 per
	// domain, and its key.
	ClassBytes int
	// Topologies is how many topology keys are kept at most; each takes 4 bytes per node and its values.
	Topologies int
}

// DefaultLimits suit clusters of the sizes that Kubernetes supports: at the limits, an Index of 5,000 nodes takes about
// 50 MB more than without selectors. The sets of eligible nodes take up to 128 MB more: at 15,000 nodes those of 500
// node pools whose pods are spread over zones and hosts.
func DefaultLimits() Limits {
	return Limits{Selectors: 20_000, Cells: 4 << 20, IdleQueries: 1 << 17, ClassBytes: 128 << 20, Topologies: 32}
}

// Index keeps counts and repairs them as the cluster changes: Update learns the changes of a snapshot,
// Count answers queries about it. It belongs to one goroutine at a time; the tables that it returns do
// not.
type Index struct {
	limits Limits

	slots  []slot
	byName map[string]int32 // slot by node name
	// byNode are the slots of the nodes that were there when it was made; tables have it, so that it is
	// replaced, never changed. unlisted counts the nodes that are not in it.
	byNode   map[*v1.Node]int32
	unlisted int
	free     []int32 // slots without a node
	// order and generations are the slots and generations of the last snapshot, by position: what has the
	// same generation at the same position is the same node, unchanged.
	order       []int32
	generations []int64
	updates     uint64

	labelSets  labelSets
	counters   counters
	topologies map[string]*topology
	classes    map[classKey]*class
	clock      uint64 // ticks with every use of a topology or class

	scratch   []int32               // a zero per slot
	left      map[*v1.Pod]*labelSet // used by refreshPods, empty between calls
	refreshed uint64                // nodes whose generation had changed, ever
	// classesBuilt is how often a query found no class and looked at every node, classesEvicted how many were dropped.
	classesBuilt, classesEvicted uint64
}

// slot is the place of a node. Slots are reused.
type slot struct {
	name       string
	node       *v1.Node // nil for a free slot
	generation int64
	update     uint64 // the last update that went through all nodes and saw this one
	pods       []placed
}

// placed is a pod on a node, with its label set, or nil if it does not count.
type placed struct {
	pod *v1.Pod
	set *labelSet
}

// NewIndex returns an index of an empty cluster.
func NewIndex(limits Limits) *Index {
	return &Index{
		limits:     limits,
		byName:     map[string]int32{},
		labelSets:  newLabelSets(),
		counters:   newCounters(),
		topologies: map[string]*topology{},
		classes:    map[classKey]*class{},
		left:       map[*v1.Pod]*labelSet{},
	}
}

// Updates returns how many Updates there have been.
func (ix *Index) Updates() uint64 { return ix.updates }

// Update makes the index reflect a snapshot, given as all of its nodes and, by position, their
// generations, which it copies. A generation changes whenever the node or its pods change, and no two
// states of any nodes share one. A node whose generation is that of the last update is taken as
// unchanged; otherwise its pods are compared with those known. The cost is the number of nodes, by a very
// small factor, and the pods of the nodes that changed. The index keeps the pods and nodes: like objects
// of informers they must not be changed afterwards.
//
// That the caller reads the generations, and not this function by a method of N, halves that factor: each
// of them is a look at memory that has not been looked at for long, and a processor waits for several at
// once only when there is little between them.
func Update[N NodeInfo[P], P PodInfo](ix *Index, nodes []N, generations []int64) {
	ix.updates++
	if len(nodes) == len(ix.order) && updateInPlace(ix, nodes, generations) {
		return
	}
	ix.order = ix.order[:0]
	ix.generations = append(ix.generations[:0], generations...)
	for i, n := range nodes {
		node := n.Node()
		s, known := ix.byName[node.Name]
		if !known {
			s = ix.addNode(node)
		}
		if !known || ix.slots[s].generation != generations[i] {
			refresh(ix, s, n, generations[i])
		}
		ix.slots[s].update = ix.updates
		ix.order = append(ix.order, s)
	}
	if len(ix.byName) == len(nodes) {
		return
	}
	for s := range ix.slots {
		if ix.slots[s].node != nil && ix.slots[s].update != ix.updates {
			ix.removeNode(int32(s)) //nolint:gosec // slots are int32
		}
	}
}

// updateInPlace is the update for a list of the same nodes in the same order. It returns false, with
// some nodes updated, when the list turns out to be another.
func updateInPlace[N NodeInfo[P], P PodInfo](ix *Index, nodes []N, generations []int64) bool {
	for i, generation := range generations {
		if generation == ix.generations[i] {
			continue
		}
		s := ix.order[i]
		if ix.slots[s].name != nodes[i].Node().Name {
			return false
		}
		refresh(ix, s, nodes[i], generation)
		ix.generations[i] = generation
	}
	return true
}

// refresh learns the state of a node that may have changed.
func refresh[N NodeInfo[P], P PodInfo](ix *Index, s int32, n N, generation int64) {
	ix.refreshed++
	known := &ix.slots[s]
	known.generation = generation
	if node := n.Node(); node != known.node {
		if !countsAlike(node, known.node) {
			ix.moveNode(s, node)
		}
		known.node = node
		ix.unlisted++
	}
	refreshPods(ix, s, n.GetPods())
}

// countsAlike reports whether two states of a node are the same to every topology and Eligibility.
func countsAlike(a, b *v1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.EqualFunc(a.Spec.Taints, b.Spec.Taints, func(x, y v1.Taint) bool {
		return x.Key == y.Key && x.Value == y.Value && x.Effect == y.Effect
	})
}

// refreshPods learns the pods of a node. A pod that is the same object as before is unchanged; any other
// is counted again, which makes no difference to one that has neither been relabelled nor started to
// terminate. Most pods keep their position, too.
func refreshPods[P PodInfo](ix *Index, s int32, pods []P) {
	known := ix.slots[s].pods
	for i, p := range known {
		if i >= len(pods) || pods[i].GetPod() != p.pod {
			ix.left[p.pod] = p.set
		}
	}
	for i, info := range pods {
		pod := info.GetPod()
		if i < len(known) && known[i].pod == pod {
			continue
		}
		set, stayed := ix.left[pod]
		if stayed {
			delete(ix.left, pod)
		} else {
			set = ix.labelSets.add(pod, s)
		}
		if i < len(known) {
			known[i] = placed{pod: pod, set: set}
		} else {
			known = append(known, placed{pod: pod, set: set})
		}
	}
	// Whatever comes is counted before what goes, so that a label set does not vanish in between.
	for _, set := range ix.left {
		ix.labelSets.remove(set, s)
	}
	clear(ix.left)
	known = known[:len(pods)]
	clear(known[len(known):cap(known)]) // so that pods which are gone are not kept from being freed
	ix.slots[s].pods = known
}

// addNode finds a slot for a node and enters it without pods.
func (ix *Index) addNode(node *v1.Node) int32 {
	var s int32
	if n := len(ix.free); n > 0 {
		s = ix.free[n-1]
		ix.free = ix.free[:n-1]
	} else {
		s = int32(len(ix.slots)) //nolint:gosec // far fewer nodes than that
		ix.slots = append(ix.slots, slot{})
		ix.scratch = append(ix.scratch, 0)
		for _, t := range ix.topologies {
			t.domain = append(t.domain, none)
		}
		for _, c := range ix.classes {
			c.domainOf = append(c.domainOf, none)
		}
	}
	ix.slots[s] = slot{name: node.Name, node: node}
	ix.byName[node.Name] = s
	ix.unlisted++
	ix.enterNode(s, node)
	return s
}

// removeNode forgets a node and its pods.
func (ix *Index) removeNode(s int32) {
	for _, p := range ix.slots[s].pods {
		ix.labelSets.remove(p.set, s)
	}
	ix.leaveNode(s)
	delete(ix.byName, ix.slots[s].name)
	ix.byNode = nil // the slot will be another node's
	ix.slots[s] = slot{}
	ix.free = append(ix.free, s)
}

// fewNodes may miss from a list of nodes, however small the cluster.
const fewNodes = 4

// slotsByNode returns the slots of most nodes. The rest, which have changed since it was made, are few.
func (ix *Index) slotsByNode() map[*v1.Node]int32 {
	if ix.byNode == nil || ix.unlisted > max(fewNodes, len(ix.byName)/16) {
		ix.byNode = make(map[*v1.Node]int32, len(ix.byName))
		for s := range ix.slots {
			if node := ix.slots[s].node; node != nil {
				ix.byNode[node] = int32(s) //nolint:gosec // slots are int32
			}
		}
		ix.unlisted = 0
	}
	return ix.byNode
}

// enterNode adds a node to the topologies and then to the classes, which read the topologies.
func (ix *Index) enterNode(s int32, node *v1.Node) {
	for _, t := range ix.topologies {
		t.enterNode(s, node)
	}
	for _, c := range ix.classes {
		c.enterNode(s, node)
	}
}

// moveNode updates them for a node whose labels or taints changed.
func (ix *Index) moveNode(s int32, node *v1.Node) {
	for _, c := range ix.classes {
		c.leaveNode(s)
	}
	for _, t := range ix.topologies {
		t.moveNode(s, node)
	}
	for _, c := range ix.classes {
		c.enterNode(s, node)
	}
}

func (ix *Index) leaveNode(s int32) {
	for _, c := range ix.classes {
		c.leaveNode(s)
	}
	for _, t := range ix.topologies {
		t.leaveNode(s)
	}
}
