package policies

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/policy"
)

// silent are the plugins whose refusals say nothing about the room in a zone: ZoneSpread's own are what fail-over is to
// overcome, PermitGate's follow a plan that was made before.
var silent = map[string]bool{"ZoneSpread": true, "PermitGate": true}

// noNode is the name of no node.
const noNode = "\x00"

// Attempt takes in that a pod found no node: which policies refused it somewhere, and which zones refused it for other
// reasons on every node that is eligible for it. nodes are all nodes of the snapshot.
func (s *Policies) Attempt(pod *v1.Pod, v *Verdicts, nodes []fwk.NodeInfo, statuses fwk.NodeToStatusReader) {
	if v == nil {
		return
	}
	// A node without a status of its own has the one that is for all such nodes: that of a PreFilter plugin, or none
	// that was asked about it.
	absent := statuses.Get(noNode)
	outcomes := make([]policy.Outcome, len(nodes))
	for i, info := range nodes {
		if status := statuses.Get(info.Node().Name); status != absent && status.IsRejected() && status.Plugin() != "" && !silent[status.Plugin()] {
			outcomes[i] = policy.Refused
		}
	}
	evidence := make([]map[string]policy.Evidence, len(v.rows))
	refused := make([]bool, len(v.rows))
	for r := range v.rows {
		row := &v.rows[r]
		key := row.applied.policy.TopologyKey()
		evidence[r] = policy.Gather(func(yield func(string, policy.Outcome) bool) {
			for i, info := range nodes {
				node := info.Node()
				if !row.table.Check(node.Labels).OK() {
					refused[r] = true
				}
				zone, ok := node.Labels[key]
				if ok && row.inclusion.eligible(node) && !yield(zone, outcomes[i]) {
					return
				}
			}
		})
	}
	shape := policy.Shape(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range v.rows {
		e := v.rows[r].applied.entry
		uid := v.rows[r].applied.policy.UID()
		if s.entries[uid] != e {
			continue // deleted meanwhile
		}
		news := false
		if known, ok := e.pods.facts[pod.UID]; ok && known.node == "" && refused[r] != e.refused[pod.UID] {
			if refused[r] {
				e.refused[pod.UID] = true
			} else {
				delete(e.refused, pod.UID)
			}
			news = true
		}
		if e.machine.ObserveAttempt(s.clock.Now(), shape, evidence[r]) || news {
			s.queue.AddAfter(uid, gather)
		}
	}
}

// Took takes in that a pod found room on a node. It is not for pods that are only tried out.
func (s *Policies) Took(pod *v1.Pod, node *v1.Node) {
	selected := s.of(pod)
	if len(selected) == 0 || node == nil {
		return
	}
	shape := ""
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range selected {
		zone, ok := node.Labels[a.policy.TopologyKey()]
		if !ok || !a.entry.machine.KnowsShapes() {
			continue
		}
		if shape == "" {
			shape = policy.Shape(pod)
		}
		if a.entry.machine.ObserveAttempt(s.clock.Now(), shape, map[string]policy.Evidence{zone: policy.TookPod}) {
			s.queue.AddAfter(a.policy.UID(), gather)
		}
	}
}
