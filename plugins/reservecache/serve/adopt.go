package serve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// adopt takes over what the status of reservations says that they hold, and who uses it. The planner then drops what has no room
// any more.
//
// A status is written within a second of a change, so that it may lack the last consumers. An owner that was bound to a slot's node
// after the report in the status was made is one if it would use a slot now: in Guarantee mode if one is unused, in Headroom mode if it
// does not fit beside what is held.
func (s *Server) adopt(reservations []applying) {
	for _, a := range reservations {
		if a.spec.nodes == nil && len(a.status.Zones) == 0 {
			s.admitRunning(a.spec)
			continue
		}
		listed := map[string]bool{}
		for i := range a.status.Zones {
			zone := &a.status.Zones[i]
			for j := range zone.Nodes {
				listed[zone.Nodes[j].Name] = true
				s.restore(a.spec, zone.Name, &zone.Nodes[j], a.status.LastUpdateTime.Time)
			}
		}
		if a.current {
			s.restoreUnlisted(a.spec, listed, a.status.LastUpdateTime.Time)
		}
	}
}

// admitRunning gives slots of a reservation that is new, or applies again, to the owners that run already, if used slots count as held: it
// would else hold room for them a second time.
func (s *Server) admitRunning(spec *spec) {
	if spec.nodes != nil || spec.use == holds.UseLast {
		return
	}
	s.mu.Lock()
	var names []string
	if owners := s.members.claims[spec.uid]; owners != nil {
		names = slices.Sorted(maps.Keys(owners.byNode))
	}
	s.mu.Unlock()
	inAll, inZone := spec.slots, map[string]int{}
	for _, z := range spec.zones {
		inZone[z.Name] = int(z.Slots)
	}
	for _, name := range names {
		node := s.snapshot.Node(name)
		if node == nil || spec.fit.Of(node.Node) != "" {
			continue
		}
		zone := node.Node.Labels[v1.LabelTopologyZone]
		left := inAll
		if len(spec.zones) > 0 {
			left = inZone[zone]
		}
		if spec.perNode > 0 {
			left = min(left, spec.perNode)
		}
		consumers, slots := s.runningOwners(spec, name, left)
		inAll -= slots
		inZone[zone] -= slots
		s.Holds.Restore(spec.uid, name, zone, spec.slot.Times(int64(slots)), consumers)
	}
}

// runningOwners returns the owners on a node that a number of slots is enough for, the longest there first, and how many slots they use.
func (s *Server) runningOwners(spec *spec, nodeName string, left int) (consumers []holds.Consumer, slots int) {
	pods := s.Ledger.PodsOn(nodeName)
	slices.SortFunc(pods, func(a, b ledger.PodStatus) int {
		return cmp.Or(boundAt(a.Pod).Compare(boundAt(b.Pod)), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	for i := range pods {
		if !s.ownerAmong(spec, pods[i].Pod) {
			continue
		}
		if n := holds.Cover(&pods[i].Requests, &spec.slot); slots+n <= left {
			consumers = append(consumers, holds.Consumer{UID: pods[i].Pod.UID, Took: spec.slot.Times(int64(n))})
			slots += n
		}
	}
	return consumers, slots
}

// restoreUnlisted takes over what a reservation of amounts holds on the nodes that its status leaves out: what its spec says.
func (s *Server) restoreUnlisted(spec *spec, listed map[string]bool, at time.Time) {
	for name, amount := range spec.nodes {
		if node := s.snapshot.Node(name); !listed[name] && node != nil {
			zone := node.Node.Labels[v1.LabelTopologyZone]
			s.restore(spec, zone, &v1alpha1.ReservationNodeStatus{Name: name, Amounts: v1alpha1.ReservationNodeAmounts{
				ReservationAmounts: v1alpha1.ReservationAmounts{Held: amount.List()},
			}}, at)
		}
	}
}

// recorded returns what the status says of a node: what is held, and who uses it.
func (s *spec) recorded(n *v1alpha1.ReservationNodeStatus) (held ledger.Resources, consumers []holds.Consumer) {
	if s.nodes != nil {
		for i := range n.Amounts.Consumers {
			c := &n.Amounts.Consumers[i]
			consumers = append(consumers, holds.Consumer{UID: c.UID, Took: ledger.ResourcesOf(c.Amount)})
		}
		return ledger.ResourcesOf(n.Amounts.Held), consumers
	}
	for i, uid := range n.Consumers {
		if slices.Index(n.Consumers, uid) < i {
			continue // a pod that uses n slots is listed n times
		}
		slots := int64(0)
		for _, other := range n.Consumers[i:] {
			if other == uid {
				slots++
			}
		}
		consumers = append(consumers, holds.Consumer{UID: uid, Took: s.slot.Times(slots)})
	}
	return s.slot.Times(n.Slots), consumers
}

// restore takes over what a reservation holds on a node.
func (s *Server) restore(spec *spec, zone string, n *v1alpha1.ReservationNodeStatus, at time.Time) {
	pods := map[types.UID]ledger.PodStatus{}
	for _, p := range s.Ledger.PodsOn(n.Name) {
		pods[p.Pod.UID] = p
	}
	held, consumers := spec.recorded(n)
	consumers = slices.DeleteFunc(consumers, func(c holds.Consumer) bool {
		_, there := pods[c.UID]
		return !there
	})
	s.Holds.Restore(spec.uid, n.Name, zone, held, consumers)

	// A status of before there were consumers says only how many slots were used.
	legacy := 0
	if at.IsZero() && len(n.Consumers) == 0 {
		legacy = int(n.Used)
	}
	for i := range consumers {
		delete(pods, consumers[i].UID)
	}
	late := make([]ledger.PodStatus, 0, len(pods))
	for _, p := range pods {
		if (legacy > 0 || boundSince(p.Pod, at)) && s.ownerAmong(spec, p.Pod) {
			late = append(late, p)
		}
	}
	slices.SortFunc(late, func(a, b ledger.PodStatus) int {
		return cmp.Or(boundAt(a.Pod).Compare(boundAt(b.Pod)), cmp.Compare(a.Pod.UID, b.Pod.UID))
	})
	if legacy > 0 {
		slices.Reverse(late) // of those that may have been consumers the ones that were bound last are the likeliest
	}
	// Each is judged beside those that came before it: what the others use of the slots still counts as unused.
	node := s.snapshot.Node(n.Name)
	var requested ledger.Resources
	if node != nil {
		requested = node.Requested.Clone()
		for i := range late {
			requested.Add(&late[i].Requests, -1)
		}
	}
	for i := range late {
		part := s.partOf(spec, node, &requested, &late[i])
		requested.Add(&late[i].Requests, 1)
		if at.IsZero() {
			part = spec.slot.Times(min(max(part.Pods, 1), int64(legacy)))
		}
		if !part.IsZero() && s.Holds.Take(late[i].Pod.UID, n.Name, spec.uid, part, nil) == nil {
			legacy -= int(part.Pods)
		}
	}
}

// ownerAmong reports whether a pod belongs to the reservation.
func (s *Server) ownerAmong(spec *spec, pod *v1.Pod) bool {
	owner := s.OwnerOf(pod)
	return owner != nil && owner.Claim == spec.uid
}

// partOf returns what a pod on a node would use of the reservation if it came there now, beside pods that take what is requested. The
// node is nil if it is not there.
func (s *Server) partOf(spec *spec, node *ledger.NodeState, requested *ledger.Resources, p *ledger.PodStatus) ledger.Resources {
	if node == nil {
		// What the node has is not known; owners of a Guarantee use slots whatever there is.
		if spec.use == holds.UseLast {
			return ledger.Resources{}
		}
		return spec.slot.Times(int64(holds.Cover(&p.Requests, &spec.slot)))
	}
	who := holds.Asker{Claim: spec.uid, Use: spec.use}
	verdict := s.Holds.Node(node.Node.Name).Fit(&holds.Question{Who: &who, Request: &p.Requests, Allocatable: &node.Allocatable, Requested: requested})
	return verdict.Takes
}

// boundSince reports whether a pod was bound after that time. The API server says so in whole seconds.
func boundSince(pod *v1.Pod, at time.Time) bool {
	bound := boundAt(pod)
	return !at.IsZero() && !bound.IsZero() && !bound.Before(at.Truncate(time.Second))
}

// boundAt returns when the API server bound a pod, which is when its condition PodScheduled became True; zero if that is not
// known.
func boundAt(pod *v1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
