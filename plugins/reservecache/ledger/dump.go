package ledger

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Dump is a copy of all that a ledger knows, for people who look for a fault.
type Dump struct {
	// Nodes are sorted by name, ghosts among them.
	Nodes []NodeDump
}

// NodeDump is one node of a Dump.
type NodeDump struct {
	Name string
	// Ghost means that the node is gone and only its pods keep it in the ledger. Node is then nil.
	Ghost                  bool
	Node                   *v1.Node
	Zone                   string
	Allocatable, Requested Resources
	Generation             uint64
	// Pods are sorted by UID.
	Pods []PodStatus
}

// Dump copies the whole ledger. It holds the lock for as long as that takes.
func (l *Ledger) Dump() Dump {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := Dump{Nodes: make([]NodeDump, 0, len(l.nodes))}
	for _, name := range slices.Sorted(maps.Keys(l.nodes)) {
		n := l.nodes[name]
		nd := NodeDump{
			Name:        name,
			Ghost:       n.ghost(),
			Node:        n.object,
			Zone:        zoneName(n.zone),
			Allocatable: n.allocatable.Clone(),
			Requested:   n.requested.Clone(),
			Generation:  n.generation,
			Pods:        make([]PodStatus, 0, len(n.pods)),
		}
		for _, p := range n.pods {
			nd.Pods = append(nd.Pods, p.status())
		}
		slices.SortFunc(nd.Pods, func(a, b PodStatus) int { return strings.Compare(string(a.Pod.UID), string(b.Pod.UID)) })
		d.Nodes = append(d.Nodes, nd)
	}
	return d
}

// Pods returns all pods of the dump by UID.
func (d Dump) Pods() map[types.UID]PodStatus {
	pods := map[types.UID]PodStatus{}
	for _, n := range d.Nodes {
		for _, p := range n.Pods {
			pods[p.Pod.UID] = p
		}
	}
	return pods
}

// zoneName makes a zone key readable: the zone, after its region and a slash where it has one.
func zoneName(key string) string {
	return strings.TrimPrefix(strings.ReplaceAll(key, ":\x00:", "/"), "/")
}
