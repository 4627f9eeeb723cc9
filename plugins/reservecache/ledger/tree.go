package ledger

import "slices"

// tree orders the nodes by zone: kube-scheduler looks at one node of each zone in turn, so that a search
// that stops early has seen all zones. Zones are in the order in which they got their first node, nodes in
// the order in which they came to their zone.
type tree struct {
	zones  []string
	byZone map[string][]*node
	size   int
	// version counts the changes of the order.
	version uint64
}

func newTree() tree {
	return tree{byZone: map[string][]*node{}}
}

// add appends a node that is not in the tree to a zone.
func (t *tree) add(n *node, zone string) {
	nodes, ok := t.byZone[zone]
	if !ok {
		t.zones = append(t.zones, zone)
	}
	t.byZone[zone] = append(nodes, n)
	n.zone = zone
	t.size++
	t.version++
}

// remove takes a node that is in the tree out of it, and its zone when that was its last node.
func (t *tree) remove(n *node) {
	nodes := t.byZone[n.zone]
	i := slices.Index(nodes, n)
	nodes = slices.Delete(nodes, i, i+1)
	if len(nodes) > 0 {
		t.byZone[n.zone] = nodes
	} else {
		delete(t.byZone, n.zone)
		i := slices.Index(t.zones, n.zone)
		t.zones = slices.Delete(t.zones, i, i+1)
	}
	n.zone = ""
	t.size--
	t.version++
}

// each calls visit with the nodes in round-robin order.
func (t *tree) each(visit func(*node)) {
	rest := make([][]*node, 0, len(t.zones))
	for _, zone := range t.zones {
		rest = append(rest, t.byZone[zone])
	}
	for len(rest) > 0 {
		left := rest[:0]
		for _, nodes := range rest {
			visit(nodes[0])
			if len(nodes) > 1 {
				left = append(left, nodes[1:])
			}
		}
		rest = left
	}
}
