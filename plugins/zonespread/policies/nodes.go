package policies

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	"zonewise.dev/plugins/zonespread/policy"
)

// nodeSeen has the worker look at all nodes, at once: the nodes of a zone that has gone away are tainted soon, and
// a zone that is not known to be unready would then leave the minimum without a grace period. Changes that come while
// the worker is busy are taken in together.
func (s *Policies) nodeSeen(o any) {
	if node, ok := object[*v1.Node](o); ok {
		s.forgetZones(nil, node.Labels)
	}
	s.queue.Add(nodes)
}

func (s *Policies) nodeUpdated(before, after any) {
	was, ok1 := object[*v1.Node](before)
	is, ok2 := object[*v1.Node](after)
	if ok1 && ok2 && tellsOfZones(was, is) {
		s.forgetZones(was.Labels, is.Labels)
		s.queue.Add(nodes)
	}
}

// tellsOfZones tells whether the change of a node may change a zone. Heartbeats do not.
func tellsOfZones(was, is *v1.Node) bool {
	return was.UID != is.UID || readySince(was) != readySince(is) || !apiequality.Semantic.DeepEqual(was.Labels, is.Labels)
}

// readiness is a node's condition Ready.
type readiness struct {
	ready bool
	since time.Time // of the last change; zero when unknown
}

func readySince(node *v1.Node) readiness {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return readiness{ready: c.Status == v1.ConditionTrue, since: c.LastTransitionTime.Time}
		}
	}
	return readiness{}
}

// zones sums up the nodes by the value of a label, the way a Machine wants them.
func (c *cluster) zones(topologyKey string) []policy.ZoneNodes {
	all, _ := c.nodes.List(labels.Everything()) // the lister of a cache has no errors
	index := map[string]int{}
	var zones []policy.ZoneNodes
	unknown := map[string]bool{} // zones with a node that does not tell since when it is not ready
	for _, node := range all {
		name, ok := node.Labels[topologyKey]
		if !ok {
			continue
		}
		i, seen := index[name]
		if !seen {
			i = len(zones)
			index[name] = i
			zones = append(zones, policy.ZoneNodes{Name: name})
		}
		z, r := &zones[i], readySince(node)
		z.Nodes++
		switch {
		case r.ready:
			z.Ready++
		case r.since.IsZero():
			unknown[name] = true
		case r.since.After(z.UnreadySince):
			z.UnreadySince = r.since
		}
	}
	for i := range zones {
		if zones[i].Ready > 0 || unknown[zones[i].Name] {
			zones[i].UnreadySince = time.Time{}
		}
	}
	return zones
}

// observeNodesLocked shows the nodes to a policy that needs them now. Before the node informer has synced there is nothing
// to show: an empty cache looks like a lost cluster.
func (s *Policies) observeNodesLocked(e *entry) {
	if s.cluster.nodesSynced() {
		e.machine.ObserveNodes(s.clock.Now(), s.cluster.zones(e.policy.TopologyKey()))
	}
}

// observeNodes shows the nodes to all policies.
func (s *Policies) observeNodes() {
	if !s.cluster.nodesSynced() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	byKey := map[string][]policy.ZoneNodes{}
	for uid, e := range s.entries {
		if e.policy == nil {
			continue
		}
		key := e.policy.TopologyKey()
		if _, done := byKey[key]; !done {
			byKey[key] = s.cluster.zones(key)
		}
		if e.machine.ObserveNodes(s.clock.Now(), byKey[key]) {
			// A zone that has lost its last node is down from now on, without a timer.
			e.wake = true
		}
		s.queue.Add(uid)
	}
}
