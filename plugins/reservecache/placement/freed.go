package placement

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"zonewise.dev/plugins/reservecache/ledger"
)

// A node is freed when its room has grown, or when it may take slots that it could not take before. A zone lists its
// nodes by when that was, so that a claim that has found no room need only look at those that were freed since.

// zone is the nodes of a zone.
type zone struct {
	name string
	// newest is the node that was freed last.
	newest *nodeRoom
	// nodes counts them; allocatable and unused are sums over them.
	nodes               int
	allocatable, unused ledger.Resources
}

// objectFrees reports whether a node may take slots, or pods, that it could not take before.
func objectFrees(before, now *v1.Node) bool {
	return before.Spec.Unschedulable && !now.Spec.Unschedulable || ledger.Unready(before) && !ledger.Unready(now) ||
		len(before.Spec.Taints) > 0 && !apiequality.Semantic.DeepEqual(before.Spec.Taints, now.Spec.Taints) ||
		!maps.Equal(before.Labels, now.Labels)
}

// free records that a node may have room at which claims have not looked, and puts it first in its zone.
func (s *nodeSet) free(n *nodeRoom) {
	s.freeings++
	n.freedAt = s.freeings
	s.queueForWake(n)
	s.queueForReconcile(n)
	if z := n.zone; z != nil && z.newest != n {
		z.unlink(n)
		z.link(n)
	}
}

// maxRoomSince returns an amount that is no less than the room of any node that was freed after a point. It reports
// false if there are more than limit of these.
func (s *nodeSet) maxRoomSince(point uint64, limit int) (most ledger.Resources, ok bool) {
	for _, z := range s.zones {
		for n := z.newest; n != nil && n.freedAt > point; n = n.older {
			if limit--; limit < 0 {
				return most, false
			}
			most.SetMax(&n.room)
		}
	}
	return most, true
}

func (z *zone) link(n *nodeRoom) {
	n.older = z.newest
	if z.newest != nil {
		z.newest.newer = n
	}
	z.newest = n
}

func (z *zone) unlink(n *nodeRoom) {
	if n.newer != nil {
		n.newer.older = n.older
	}
	if n.older != nil {
		n.older.newer = n.newer
	}
	if z.newest == n {
		z.newest = n.older
	}
	n.newer, n.older = nil, nil
}

// enterZone puts a node into a zone; there it is freed.
func (s *nodeSet) enterZone(n *nodeRoom, name string) {
	if n.zone != nil && n.zone.name == name {
		return
	}
	s.leaveZone(n)
	z := s.zones[name]
	if z == nil {
		z = &zone{name: name}
		s.zones[name] = z
	}
	z.nodes++
	z.allocatable.Add(&n.allocatable, 1)
	z.unused.Add(&n.unused, 1)
	n.zone = z
	s.free(n)
}

func (s *nodeSet) leaveZone(n *nodeRoom) {
	z := n.zone
	if z == nil {
		return
	}
	z.unlink(n)
	z.nodes--
	z.allocatable.Add(&n.allocatable, -1)
	z.unused.Add(&n.unused, -1)
	n.zone = nil
	if z.nodes == 0 {
		delete(s.zones, z.name)
	}
}
