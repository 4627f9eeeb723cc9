package world

import (
	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/zonespread/policy"
)

// Place gives a waiting pod the node that the world takes for it, and tells whether there is one.
func (w *World) Place(p *Pod) bool {
	c := w.classOf(p)
	if c.full {
		return false // one like it has found no node, and nothing has been freed since
	}
	n, h := w.choose(c)
	if n == nil {
		c.full = true
		return false
	}
	if h != nil {
		w.hold(n, h, -1)
		p.slotOf = h
	}
	w.Bind(p, n)
	w.count(c, n, 1)
	return true
}

// Undo takes back what Place did, for a gang of which not enough members were placed. Slots that the pods had used are
// theirs again.
func (w *World) Undo(pods []*Pod) {
	for _, p := range pods {
		if p.slotOf != nil {
			w.hold(p.Node, p.slotOf, 1)
			p.slotOf = nil
		}
		w.Unbind(p)
	}
	clear(w.classes)
}

// count keeps what a class has counted current.
func (w *World) count(c *Class, n *Node, delta int) {
	for _, s := range c.zones {
		s.placed(n.index, delta)
	}
	for _, t := range c.near {
		t.placed(n, delta)
	}
	for _, table := range c.tables {
		if zone, ok := domain(n, table.Policy().TopologyKey()); ok {
			table.Add(zone, changeOf(delta, c.eligible(table.Policy(), n.index)))
			table.refresh()
		}
	}
	if c.taken != nil && delta > 0 {
		c.taken[n.index] = true
	}
}

// changeOf is what a table takes of pods of the class.
func changeOf(delta int, eligible bool) policy.Change {
	change := policy.Change{AllPods: int64(delta), Held: int64(delta)}
	if eligible {
		change.Pods = int64(delta)
	}
	return change
}

// eligible tells whether the pods of a node count for a policy of the class.
func (c *Class) eligible(p *policy.Policy, node int) bool {
	return (!p.HonorsAffinity() || c.admitted(node)) && (!p.HonorsTaints() || c.tolerated(node))
}

// choose returns the node for one more pod of a class, and the reservation of which it takes a slot there; nil when
// there is none.
func (w *World) choose(c *Class) (best *Node, slotOf *Hold) {
	bestFirst, bestPreference := false, 0.0
	for _, i := range c.candidates {
		n, preference := w.Nodes[i], c.preference(i)
		better := best == nil || preference > bestPreference || preference == bestPreference && n.free > best.free
		if !better && bestFirst || !w.dynamic(c, i) {
			continue // no better, even if it is allowed
		}
		verdict := n.room(c)
		if !verdict.Fits {
			continue
		}
		// What comes first: slots where they are to be used first, free room where they are a last resort.
		first := (verdict.Slots > 0) == (c.asker.Use != holds.UseLast)
		if first == bestFirst && !better || bestFirst && !first {
			continue
		}
		best, bestFirst, bestPreference, slotOf = n, first, preference, nil
		if verdict.Slots > 0 {
			slotOf = c.owner
		}
	}
	return best, slotOf
}

// dynamic tells whether what is counted lets one more pod onto a node.
func (w *World) dynamic(c *Class, i int) bool {
	n := w.Nodes[i]
	if !n.fitsRequests(c) || c.forbidden[i] || c.taken != nil && c.taken[i] {
		return false
	}
	for _, s := range c.zones {
		if s.hard && !s.fits(i) {
			return false
		}
	}
	for _, table := range c.tables {
		if !table.rule(i).OK() {
			return false
		}
	}
	for _, t := range c.near {
		if !t.fits(n, c.near) {
			return false
		}
	}
	return true
}

// fitsRequests tells whether a node has what a class asks for, holds aside.
func (n *Node) fitsRequests(c *Class) bool {
	for _, name := range c.names {
		if n.Requested.Amount(name)+c.requests.Amount(name) > n.Allocatable.Amount(name) {
			return false
		}
	}
	return true
}

// room is the answer on the holds of a node.
func (n *Node) room(c *Class) holds.Verdict {
	return n.nodeHolds().Fit(&holds.Question{Who: &c.asker, Request: &c.requests, Allocatable: &n.Allocatable, Requested: &n.Requested})
}

// request changes what is requested on a node. What is free of it is the share of the scarcer of cpu and memory.
func (n *Node) request(r *ledger.Resources, sign int64) {
	n.Requested.Add(r, sign)
	least := 1.0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if all := n.Allocatable.Amount(name); all > 0 {
			least = min(least, 1-float64(n.Requested.Amount(name))/float64(all))
		}
	}
	n.free = least
}

// ruled is the table of a policy, by node.
type ruled struct {
	*policy.Table
	zones  []string
	at     []int // of each node, -1 for one without a zone
	rules  []policy.Rule
	scores []int64
	hard   bool
	pods   map[string]int64 // by zone, as counted at first
}

// ruledBy prepares a table for the nodes of the world.
func (w *World) ruledBy(table *policy.Table) *ruled {
	r := &ruled{Table: table, at: make([]int, len(w.Nodes)), hard: table.Policy().Hard(), pods: map[string]int64{}}
	index := map[string]int{}
	for i, n := range w.Nodes {
		r.at[i] = -1
		zone, ok := domain(n, table.Policy().TopologyKey())
		if !ok || n.Lost {
			continue
		}
		at, seen := index[zone]
		if !seen {
			at = len(r.zones)
			index[zone] = at
			r.zones = append(r.zones, zone)
		}
		r.at[i] = at
	}
	r.refresh()
	return r
}

// refresh asks the table again, after its counts have changed.
func (r *ruled) refresh() {
	r.rules = r.rules[:0]
	for _, zone := range r.zones {
		r.rules = append(r.rules, r.Rule(zone))
	}
	r.scores = r.Scores(r.zones)
}

// rule is the verdict on a node.
func (r *ruled) rule(node int) policy.Rule {
	if !r.hard {
		return policy.Pass
	}
	if r.at[node] < 0 {
		return policy.NoLabel
	}
	return r.rules[r.at[node]]
}

// preference is how much a node is preferred: by the policies, less what is there already of what the pods are to be
// spread from.
func (c *Class) preference(node int) float64 {
	score := 0.0
	for _, r := range c.tables {
		if at := r.at[node]; at >= 0 {
			score += float64(r.scores[at])
		}
	}
	for _, s := range c.zones {
		if at := s.keyOf[node]; at >= 0 {
			score -= float64(s.counts[at]) * 10
		}
	}
	return score
}
