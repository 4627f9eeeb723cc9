package reservecache

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// cycleFloor is the floor as scheduling cycles see it. Only they change it, one at a time, in PreFilter and Reserve: so
// Filter reads it without a lock, and others, between cycles, with it.
type cycleFloor struct {
	ledger    *ledger.Ledger
	nominated func(node string) ledger.Resources

	mu sync.RWMutex // guards floor and settled, which cycles change; it is not held during calls of the framework
	// floor never changes but in place.
	floor   *floor.Floor
	settled serve.Settled

	// known are the nodes of the last cycle, in its order, generations their generations, and index has their places by
	// name. list is where the snapshot's list of them begins, which is another slice whenever a node has come or gone
	// (UpdateSnapshot). All belong to the cycles.
	known       []knownNode
	generations []int64
	index       map[string]int
	list        *fwk.NodeInfo

	noteMu sync.Mutex // guards noted
	// noted are the nodes to which pods are nominated, or were when they were last looked at: no generation tells when
	// that changes.
	noted map[string]bool
}

// knownNode is a node as the last cycle has seen it.
type knownNode struct {
	name   string
	info   fwk.NodeInfo
	object *v1.Node
}

func newKnownNode(info fwk.NodeInfo) knownNode { return knownNode{info.Node().Name, info, info.Node()} }

// copied reports whether nodes are not those of the snapshot but copies, as in the run of a pod group's preemption,
// which takes its victims off them. The snapshot keeps a NodeInfo for as long as the node is there (UpdateSnapshot); a
// preemption has others of the same nodes (StartMutations).
func (c *cycleFloor) copied(nodes []fwk.NodeInfo) bool {
	for _, info := range nodes {
		if at, known := c.index[info.Node().Name]; known && c.known[at].object == info.Node() {
			return c.known[at].info != info
		}
	}
	return false
}

func newCycleFloor(l *ledger.Ledger, fraction float64, nominated func(string) ledger.Resources) *cycleFloor {
	return &cycleFloor{ledger: l, nominated: nominated, floor: floor.New(fraction), index: map[string]int{}, noted: map[string]bool{}}
}

// Read calls read with the floor, for which claims it was settled, and when. read must not change it, nor call back.
func (c *cycleFloor) Read(read func(*floor.Floor, serve.Settled)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	read(c.floor, c.settled)
}

// noteNomination has the next cycle look at a node whatever its generation.
func (c *cycleFloor) noteNomination(node string) {
	if node == "" {
		return
	}
	c.noteMu.Lock()
	defer c.noteMu.Unlock()
	c.noted[node] = true
}

// update brings the floor up to date with the claims and the nodes of a cycle, before its pod is filtered: room that
// has become free is first a claim's that lacks slots. It reports whether something else may be held now. all is false
// if nodes are not all of the cluster's.
func (c *cycleFloor) update(claims *serve.Claims, nodes []fwk.NodeInfo, all bool, now time.Time) (changed bool) {
	before := c.settled.Claims
	if len(claims.List) == 0 && (before == nil || len(before.List) == 0) {
		return false // without reservations a cycle costs nothing
	}
	updates, gone := c.differences(claims, nodes, all)
	c.mu.Lock()
	defer c.mu.Unlock()
	version := c.floor.Version()
	if claims != before {
		c.floor.SetClaims(claims.List)
	}
	for _, n := range updates {
		c.floor.Update(n)
	}
	for _, name := range gone {
		c.floor.Remove(name)
	}
	c.floor.Settle()
	c.settled = serve.Settled{Claims: claims, At: now}
	return claims != before || c.floor.Version() != version
}

// take has an owner that has been given a node take its slots there, and reports whether something else is held now.
func (c *cycleFloor) take(pod *floor.Pod, node string) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	version := c.floor.Version()
	c.floor.Take(pod, node)
	return c.floor.Version() != version
}

// differences returns the nodes that have changed since the last cycle, and the names of those that are gone. It calls
// the framework, and so is called without the lock.
func (c *cycleFloor) differences(claims *serve.Claims, nodes []fwk.NodeInfo, all bool) (updates []*floor.Node, gone []string) {
	recount := c.settled.Claims == nil || claims != c.settled.Claims && (claims.Counted || c.settled.Claims.Counted)
	noted := c.takeNoted()
	look := func(at int) {
		c.generations[at] = c.known[at].info.GetGeneration()
		updates = append(updates, c.nodeOf(claims, c.known[at].info))
		delete(noted, c.known[at].name)
	}
	if len(nodes) > 0 && len(nodes) == len(c.generations) && &nodes[0] == c.list {
		// In most cycles this is all. It touches one cache line for each node.
		for i, generation := range c.generations {
			if nodes[i].GetGeneration() != generation || recount {
				c.known[i].object = nodes[i].Node()
				look(i)
			}
		}
	} else {
		gone = c.takeNodes(nodes, all, func(at int, changed bool) {
			if changed || recount {
				look(at)
			}
		})
	}
	for name := range noted {
		if at, known := c.index[name]; known {
			look(at)
		}
	}
	return updates, gone
}

// takeNodes makes the nodes of a cycle the known ones, and returns the names of those that are gone. Where these are
// not all of the cluster's, none is. For each it calls look with its place, and whether it is new or its generation
// another one.
func (c *cycleFloor) takeNodes(nodes []fwk.NodeInfo, all bool, look func(at int, changed bool)) (gone []string) {
	before, known, generations := c.index, c.known, c.generations
	if all {
		c.known, c.generations, c.index = make([]knownNode, 0, len(nodes)), make([]int64, 0, len(nodes)), make(map[string]int, len(nodes))
		if c.list = nil; len(nodes) > 0 {
			c.list = &nodes[0]
		}
	}
	for _, info := range nodes {
		now := newKnownNode(info)
		at, seen := before[now.name]
		changed := !seen || generations[at] != info.GetGeneration()
		if all || !seen {
			at = len(c.known)
			c.index[now.name] = at
			c.known, c.generations = append(c.known, now), append(c.generations, info.GetGeneration())
		} else {
			c.known[at] = now
		}
		look(at, changed)
	}
	if all {
		for i := range known {
			if _, there := c.index[known[i].name]; !there {
				gone = append(gone, known[i].name)
			}
		}
	}
	return gone
}

// takeNoted returns the nodes to look at whatever their generation.
func (c *cycleFloor) takeNoted() map[string]bool {
	c.noteMu.Lock()
	defer c.noteMu.Unlock()
	if len(c.noted) == 0 {
		return nil // not the map itself, to which others write
	}
	noted := c.noted
	c.noted = map[string]bool{}
	return noted
}

// nodeOf returns what the floor is told of a node.
func (c *cycleFloor) nodeOf(claims *serve.Claims, info fwk.NodeInfo) *floor.Node {
	n := &floor.Node{
		Object: info.Node(), Generation: info.GetGeneration(), Allocatable: resourcesOf(info.GetAllocatable()), Requested: requestedOf(info),
		Nominated: c.nominated(info.Node().Name), Owned: ownedOn(claims, c.ledger, info),
	}
	if !n.Nominated.IsZero() {
		c.noteNomination(n.Object.Name)
	}
	return n
}

// ownedOn returns what the owners of each claim on a node ask for, as far as that counts; nil for none.
func ownedOn(claims *serve.Claims, l *ledger.Ledger, info fwk.NodeInfo) map[types.UID]ledger.Resources {
	if !claims.Counted {
		return nil
	}
	return claims.OwnedOf(l, podsOf(info))
}
