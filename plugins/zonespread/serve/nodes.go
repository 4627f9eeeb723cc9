package serve

import (
	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/zonespread/policy"
)

func (s *Policies) nodeSeen(*v1.Node, bool) { s.schedule(task{kind: observeNodes}, gatherInterval) }

func (s *Policies) nodeGone(*v1.Node) { s.schedule(task{kind: observeNodes}, gatherInterval) }

// nodeChanged makes the worker observe all nodes, unless the change is of something else than what makes zones open, as
// most are.
func (s *Policies) nodeChanged(before, after *v1.Node) {
	sinceBefore, closedBefore := policy.ClosedSince(before)
	since, closed := policy.ClosedSince(after)
	if closed != closedBefore || !since.Equal(sinceBefore) ||
		!apiequality.Semantic.DeepEqual(before.Labels, after.Labels) {
		s.schedule(task{kind: observeNodes}, gatherInterval)
	}
}

// observeNodes passes the nodes to all policies. It looks at the nodes once for each topology key, without the lock.
func (s *Policies) observeNodes() {
	if !s.cluster.synced() {
		return // it is done again then
	}
	s.mu.Lock()
	valid := make(map[types.UID]*policy.Policy, len(s.entries))
	for uid, e := range s.entries {
		if e.object.Valid() {
			valid[uid] = e.object.Spec
		}
	}
	s.mu.Unlock()
	nodes, _ := s.cluster.nodes.List(labels.Everything()) // the lister of a cache has no errors
	byKey := map[string]map[string]policy.ZoneNodes{}
	for uid, p := range valid {
		zones, known := byKey[p.TopologyKey()]
		if !known {
			zones = policy.NodesByZone(nodes, p.TopologyKey())
			byKey[p.TopologyKey()] = zones
		}
		s.updateZones(uid, p, zones)
	}
}

// updateZones passes the nodes to one policy.
func (s *Policies) updateZones(uid types.UID, p *policy.Policy, zones map[string]policy.ZoneNodes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || e.object.Spec != p {
		return // its change makes the worker observe the nodes again
	}
	first := !e.observed
	e.observed, e.stale = true, true
	changed, urgent := e.zones.ObserveNodes(s.clock.Now(), zones)
	if urgent {
		s.factsChangedLocked(e)
	} else if s.leading && (first || changed) {
		s.reportSoonLocked()
	}
	if changed {
		s.wakeAllLocked(e) // a zone that is open again counts for minZones, and one that is gone holds no other back
	}
}

// zoneOf returns the zone of a node, or "" if unknown.
func (s *Policies) zoneOf(topologyKey, name string) string {
	node, err := s.cluster.nodes.Get(name)
	if err != nil {
		return ""
	}
	return node.Labels[topologyKey]
}
