package serve

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
)

func (s *Policies) nodeSeen(*v1.Node, bool) { s.schedule(task{kind: lookAtNodes}, gatherInterval) }

func (s *Policies) nodeGone(*v1.Node) { s.schedule(task{kind: lookAtNodes}, gatherInterval) }

// nodeChanged makes the worker look at all nodes, unless the change is a heartbeat, as most are.
func (s *Policies) nodeChanged(was, is *v1.Node) {
	if readiness(was) != readiness(is) || was.Spec.Unschedulable != is.Spec.Unschedulable ||
		!apiequality.Semantic.DeepEqual(was.Labels, is.Labels) || !apiequality.Semantic.DeepEqual(was.Spec.Taints, is.Spec.Taints) {
		s.schedule(task{kind: lookAtNodes}, gatherInterval)
	}
}

// ready is a node's condition Ready.
type ready struct {
	is    bool
	since time.Time // of the last change; zero when unknown
}

func readiness(node *v1.Node) ready {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return ready{is: c.Status == v1.ConditionTrue, since: c.LastTransitionTime.Time}
		}
	}
	return ready{}
}

// closed reports whether a node is closed to the pods of a template, and since when: the earlier of the times at which it
// ceased to be ready and was cordoned; zero if both are unknown.
func (t *template) closed(node *v1.Node) (since time.Time, closed bool) {
	r := readiness(node)
	cordoned := node.Spec.Unschedulable && !t.cordoned
	if !r.is {
		since = r.since
	}
	for i := range node.Spec.Taints {
		at := node.Spec.Taints[i].TimeAdded
		if cordoned && at != nil && node.Spec.Taints[i].Key == v1.TaintNodeUnschedulable && (since.IsZero() || at.Time.Before(since)) {
			since = at.Time
		}
	}
	return since, !r.is || cordoned || !counts.Admits(t.eligible, node)
}

// zones sums up the nodes by the value of a label.
func (t *template) zones(nodes []*v1.Node, topologyKey string) map[string]policy.ZoneNodes {
	zones := map[string]policy.ZoneNodes{}
	unknown := map[string]bool{} // zones with a node that does not say since when it is closed
	for _, node := range nodes {
		name, ok := node.Labels[topologyKey]
		if !ok {
			continue
		}
		z := zones[name]
		z.Nodes++
		since, closed := t.closed(node)
		switch {
		case !closed:
			z.Open++
		case since.IsZero():
			unknown[name] = true
		case since.After(z.ClosedSince):
			z.ClosedSince = since
		}
		if z.Open > 0 || unknown[name] {
			z.ClosedSince = time.Time{}
		}
		zones[name] = z
	}
	return zones
}

// view is what decides how a policy sees the nodes; policies with the same view share the work.
type view struct{ topologyKey, template string }

// observeNodes passes the nodes to all policies whose members are known. It looks at the nodes once for all policies whose
// pods are alike, without the lock.
func (s *Policies) observeNodes() {
	type look struct {
		uid      types.UID
		policy   *policy.Policy
		template *template
	}
	s.mu.Lock()
	looks := make([]look, 0, len(s.entries))
	for uid, e := range s.entries {
		if e.object.Valid() && e.filled { // before, the newest pod is not known
			t := *e.newest() // a copy, which is read without the lock
			looks = append(looks, look{uid, e.object.Spec, &t})
		}
	}
	s.mu.Unlock()
	nodes, _ := s.cluster.nodes.List(labels.Everything()) // the lister of a cache has no errors
	seen := map[view]map[string]policy.ZoneNodes{}
	for _, l := range looks {
		v := view{l.policy.TopologyKey(), l.template.key}
		zones, known := seen[v]
		if !known {
			zones = l.template.zones(nodes, v.topologyKey)
			seen[v] = zones
		}
		s.showNodes(l.uid, l.policy, l.template.key, zones)
	}
}

// showNodes passes the nodes to one policy.
func (s *Policies) showNodes(uid types.UID, p *policy.Policy, openTo string, zones map[string]policy.ZoneNodes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || e.object.Spec != p || !e.filled {
		return // it is about to be shown them by itself
	}
	first := !e.seen
	e.seen, e.stale, e.openTo = true, true, openTo
	changed, urgent := e.zones.ObserveNodes(s.clock.Now(), zones)
	if urgent {
		s.factsChangedLocked(e)
	} else {
		s.armLocked(e) // of facts that were read from the status
		if s.leading && (first || changed) {
			s.writer.Later(e.object.Latest.Namespace, uid, 0) // however often its spec changes, what decisions rest on is written first
		}
	}
	if changed {
		// A zone that is open again counts for minZones.
		s.releaseLocked(e, func(r *refusal) bool { return r.by(policy.MinZones) })
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
