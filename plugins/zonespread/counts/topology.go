package counts

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// none marks a slot without a domain.
const none = -1

// emptyValue is the domain of the empty value, in every topology.
const emptyValue = 0

// topology numbers the values of one node label. A number is used again after the last node with the
// value is gone.
type topology struct {
	key    string
	domain []int32          // by slot, or none; shared like ids
	ids    map[string]int32 // by value
	values []string         // by number; shared like ids
	nodes  []int32          // by number: how many nodes have the value
	all    int              // how many nodes have a value
	inUse  int              // how many values have a node
	free   []int32
	// sharedIDs and sharedDomain are set once a Table has ids and values, and domain; they are then replaced instead of
	// changed.
	sharedIDs, sharedDomain bool
	used                    uint64
}

func newTopology(key string) *topology {
	return &topology{key: key, ids: map[string]int32{"": emptyValue}, values: []string{""}, nodes: []int32{0}}
}

func (t *topology) ownIDs() {
	if t.sharedIDs {
		t.ids, t.values = maps.Clone(t.ids), slices.Clone(t.values)
		t.sharedIDs = false
	}
}

// setDomain notes the domain of a slot.
func (t *topology) setDomain(slot, id int32) {
	if t.domain[slot] == id {
		return
	}
	if t.sharedDomain {
		t.domain = slices.Clone(t.domain)
		t.sharedDomain = false
	}
	t.domain[slot] = id
}

// valueOf returns the node's value of a topology key, and whether it has one.
func valueOf(key string, node *v1.Node) (string, bool) {
	if key == PerNode {
		return node.Name, true
	}
	value, ok := node.Labels[key]
	return value, ok
}

// moveNode notes the value of a node whose labels changed. Most changes are of other labels.
func (t *topology) moveNode(slot int32, node *v1.Node) {
	value, ok := valueOf(t.key, node)
	if id := t.domain[slot]; ok == (id != none) && (!ok || t.values[id] == value) {
		return
	}
	t.leaveNode(slot)
	t.enterNode(slot, node)
}

// enterNode notes the value of a node that is new or was left before.
func (t *topology) enterNode(slot int32, node *v1.Node) {
	value, ok := valueOf(t.key, node)
	if !ok {
		t.setDomain(slot, none)
		return
	}
	id, known := t.ids[value]
	if !known {
		t.ownIDs()
		if n := len(t.free); n > 0 {
			id = t.free[n-1]
			t.free = t.free[:n-1]
			t.values[id] = value
		} else {
			id = int32(len(t.values)) //nolint:gosec // at most one more than there are nodes
			t.values = append(t.values, value)
			t.nodes = append(t.nodes, 0)
		}
		t.ids[value] = id
	}
	if t.nodes[id]++; t.nodes[id] == 1 {
		t.inUse++
	}
	t.all++
	t.setDomain(slot, id)
}

// leaveNode forgets the value of a node.
func (t *topology) leaveNode(slot int32) {
	id := t.domain[slot]
	t.setDomain(slot, none)
	if id == none {
		return
	}
	t.all--
	if t.nodes[id]--; t.nodes[id] > 0 {
		return
	}
	t.inUse--
	if id != emptyValue {
		t.ownIDs()
		delete(t.ids, t.values[id])
		t.values[id] = ""
		t.free = append(t.free, id)
	}
}

// class is the nodes that are eligible for some query, with their domains.
type class struct {
	key         classKey
	topology    *topology
	query       Query   // one that has only what makes a node eligible
	domainOf    []int32 // by slot: the domain of an eligible node, or none
	nodes       []int32 // by domain: how many eligible nodes it has
	emptyCounts []int32 // by domain: 0, or absent without an eligible node; what a table starts from
	used        uint64
}

type classKey struct {
	topology       string
	required       string
	eligibility    string
	missingIsEmpty bool
}

func classKeyOf(q *Query) (classKey, []string) {
	key := classKey{topology: q.TopologyKey, missingIsEmpty: q.MissingIsEmpty}
	var required []string
	for _, k := range q.RequiredKeys {
		// That a node has a domain is required anyway.
		if k != q.TopologyKey || q.MissingIsEmpty {
			required = append(required, k)
		}
	}
	if len(required) > 1 {
		slices.Sort(required)
		required = slices.Compact(required)
	}
	key.required = strings.Join(required, " ")
	key.eligibility = KeyOf(q.Eligibility)
	return key, required
}

// enterNode adds a node that is new or was left before, if it is eligible.
func (c *class) enterNode(slot int32, node *v1.Node) {
	c.domainOf[slot] = none
	if c.query.eligible(node) {
		c.addEligible(slot)
	}
}

// addEligible adds an eligible node, if it has a domain.
func (c *class) addEligible(slot int32) {
	id := c.topology.domain[slot]
	if id == none {
		if !c.key.missingIsEmpty {
			return
		}
		id = emptyValue
	}
	for len(c.emptyCounts) <= int(id) {
		c.emptyCounts = append(c.emptyCounts, absent)
		c.nodes = append(c.nodes, 0)
	}
	c.domainOf[slot] = id
	c.nodes[id]++
	c.emptyCounts[id] = 0
}

// bytes is about how much memory the class takes.
func (c *class) bytes() int {
	return 256 + 4*(cap(c.domainOf)+cap(c.nodes)+cap(c.emptyCounts)) + len(c.key.eligibility) + len(c.key.required)
}

// leaveNode forgets a node.
func (c *class) leaveNode(slot int32) {
	id := c.domainOf[slot]
	c.domainOf[slot] = none
	if id == none {
		return
	}
	c.nodes[id]--
	if c.nodes[id] == 0 {
		c.emptyCounts[id] = absent
	}
}
