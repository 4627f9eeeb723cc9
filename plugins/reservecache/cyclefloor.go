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

// cycleFloor is the floor as scheduling cycles see it. Only they change it, one at a time, in PreFilter: so Filter reads
// it without a lock, and others, between cycles, with it.
type cycleFloor struct {
	ledger    *ledger.Ledger
	nominated func(node string) ledger.Resources

	mu sync.RWMutex // guards floor and settled, which cycles change; it is not held during calls of the framework
	// floor never changes but in place.
	floor   *floor.Floor
	settled serve.Settled

	// known are the nodes of the last cycle, in its order, and index has their places by name. Both belong to the cycles.
	known []knownNode
	index map[string]int

	noteMu sync.Mutex // guards noted
	// noted are the nodes to which pods are nominated, or were when they were last looked at: no generation tells when
	// that changes.
	noted map[string]bool
}

// knownNode is a node as the last cycle has seen it.
type knownNode struct {
	name       string
	generation int64
	info       fwk.NodeInfo
	object     *v1.Node
}

func newKnownNode(info fwk.NodeInfo) knownNode {
	return knownNode{info.Node().Name, info.GetGeneration(), info, info.Node()}
}

// copied reports whether nodes are not those of the snapshot but copies, as in the run of a pod group's preemption, which
// takes its victims off them. The snapshot keeps a NodeInfo for as long as the node is there (UpdateSnapshot); a
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

// Read calls read with the floor and what it was settled from. read must not change it, nor call back.
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

// update brings the floor up to date with the claims and the nodes of a cycle, before its pod is filtered: room that has
// become free is first a claim's that lacks slots. It reports whether something else may be held now. all is false if
// nodes are not all of the cluster's.
func (c *cycleFloor) update(claims *serve.Claims, nodes []fwk.NodeInfo, all bool, now time.Time) (changed bool) {
	before := c.settled.Claims
	if len(claims.List) == 0 && (before == nil || len(before.List) == 0) {
		return false // without reservations a cycle costs nothing
	}
	generation := c.ledger.Generation()
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
	c.settled = serve.Settled{Claims: claims, Generation: generation, At: now}
	return claims != before || c.floor.Version() != version
}

// differences returns the nodes that have changed since the last cycle, and the names of those that are gone. It calls
// the framework, and so is called without the lock.
func (c *cycleFloor) differences(claims *serve.Claims, nodes []fwk.NodeInfo, all bool) (updates []*floor.Node, gone []string) {
	recount := c.settled.Claims == nil || claims != c.settled.Claims && (claims.Counted || c.settled.Claims.Counted)
	noted := c.takeNoted()
	moved := false
	for i, info := range nodes {
		generation := info.GetGeneration()
		at, known := i, i < len(c.known) && c.known[i].info == info // this touches one cache line for each node
		if known && c.known[i].generation == generation && !recount && len(noted) == 0 {
			continue
		}
		name := info.Node().Name
		if !known {
			at, known = c.index[name]
			moved = moved || at != i || !known
		}
		if known && c.known[at].generation == generation && !recount && !noted[name] {
			c.known[at].info = info
			continue
		}
		if known {
			c.known[at] = newKnownNode(info)
		} else if !all {
			c.index[name] = len(c.known)
			c.known = append(c.known, newKnownNode(info))
		}
		updates = append(updates, c.nodeOf(claims, info))
	}
	if all && (moved || len(nodes) != len(c.known)) {
		now := make([]knownNode, len(nodes))
		index := make(map[string]int, len(nodes))
		for i, info := range nodes {
			now[i], index[info.Node().Name] = newKnownNode(info), i
		}
		for _, n := range c.known {
			if _, there := index[n.name]; !there {
				gone = append(gone, n.name)
			}
		}
		c.known, c.index = now, index
	}
	return updates, gone
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
