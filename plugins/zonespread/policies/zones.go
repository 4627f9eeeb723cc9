package policies

// zoneCounts are the placed pods of a policy by revision and zone. A pod on a node that is gone, or that has no zone, is in
// none. The nil zoneCounts are those that have to be made before somebody asks.
type zoneCounts struct {
	cluster     *cluster
	topologyKey string
	// zoneOf keeps what a node was counted under, so that its pods are taken off where they were put.
	zoneOf     map[string]zoneOfNode
	byRevision map[string]map[string]int64
}

type zoneOfNode struct {
	name string
	some bool // the node has a zone
}

func (z *zoneCounts) add(revision, node string, pods int64) {
	if z == nil {
		return
	}
	zones := z.byRevision[revision]
	if zones == nil {
		zones = map[string]int64{}
		z.byRevision[revision] = zones
	}
	zone, known := z.zoneOf[node]
	if !known {
		if n, err := z.cluster.nodes.Get(node); err == nil {
			zone.name, zone.some = n.Labels[z.topologyKey]
		}
		z.zoneOf[node] = zone
	}
	if !zone.some {
		return
	}
	if zones[zone.name] += pods; zones[zone.name] == 0 {
		delete(zones, zone.name)
	}
}

// drop forgets a revision without pods.
func (z *zoneCounts) drop(revision string) {
	if z != nil {
		delete(z.byRevision, revision)
	}
}

// placedLocked counts the placed pods of a policy by revision and zone. The result is the entry's, and must not be kept.
func (s *Policies) placedLocked(e *entry) map[string]map[string]int64 {
	if e.pods.zones == nil {
		z := &zoneCounts{
			cluster: s.cluster, topologyKey: e.policy.TopologyKey(), zoneOf: map[string]zoneOfNode{},
			byRevision: make(map[string]map[string]int64, len(e.pods.placed)),
		}
		for revision, byNode := range e.pods.placed {
			for node, pods := range byNode {
				z.add(revision, node, pods)
			}
		}
		e.pods.zones = z
	}
	return e.pods.zones.byRevision
}

// forgetZones has the zones counted anew of all policies to whose topology a change of a node's labels matters.
func (s *Policies) forgetZones(before, after map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		z := e.pods.zones
		if z == nil {
			continue
		}
		was, had := before[z.topologyKey]
		is, has := after[z.topologyKey]
		if was != is || had != has {
			e.pods.zones = nil
		}
	}
}
