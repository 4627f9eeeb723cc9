package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policy"
	"zonewise.dev/plugins/zonespread/serve"
)

var _ fwk.PostFilterPlugin = (*ZoneSpread)(nil)

// PostFilter notes which nodes refused the pod and which plugins did, from which its policies learn that a zone is full and
// whether to wake it. It changes nothing about the pod; to be asked at all it must come before DefaultPreemption and
// PermitGate. The framework does not ask it in the cycles of pod groups.
func (pl *ZoneSpread) PostFilter(_ context.Context, cycleState fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	if err != nil || s.verdicts == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable) // the pod has no policies
	}
	v := s.verdicts
	nodes, err := pl.lister.NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	refusedBy, proves := lookAt(nodes, statuses)
	// What a pod with a nomination is refused is about to be freed for it.
	proves = proves && pod.Status.NominatedNodeName == ""
	attempts := make([]serve.Attempt, len(v.rows))
	for i := range v.rows {
		r := &v.rows[i]
		a := serve.Attempt{Answer: r.Answer, Refused: r.table.Refused(), Scaling: r.table.Scaling()}
		if r.Hard() {
			r.addRefused(&a, nodes, refusedBy)
		}
		if proves {
			a.Full = s.full(r, nodes, refusedBy)
		}
		attempts[i] = a
	}
	pl.shared.policies.Attempted(pod, v.requests, attempts)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// noNode is a name that no node has.
const noNode = "\x00"

// byPolicies stands for ZoneSpread where one of its policies refused a node.
const byPolicies = Name + " policies"

// lookAt returns which plugin refused each node, or an empty name. The cycle proves nothing about zones if some node was not
// looked at, because a PreFilter plugin refused the pod or limited the nodes.
func lookAt(nodes []fwk.NodeInfo, statuses fwk.NodeToStatusReader) (refusedBy []string, proves bool) {
	// A node without a status of its own has the one that is for all such nodes.
	absent := statuses.Get(noNode)
	refusedBy, proves = make([]string, len(nodes)), true
	for i, info := range nodes {
		status := statuses.Get(info.Node().Name)
		switch {
		case status == absent:
			proves = false
		case !status.IsRejected():
		case status.Plugin() == Name && status.Message() != ErrReasonConstraintsNotMatch && status.Message() != ErrReasonNodeLabelNotMatch:
			refusedBy[i] = byPolicies
		default:
			refusedBy[i] = status.Plugin()
		}
	}
	return refusedBy, proves
}

// addRefused adds the nodes without a zone, and the zones that were refused because of pods that are nominated to nodes there:
// the framework counts those in when it filters a node.
func (r *row) addRefused(a *serve.Attempt, nodes []fwk.NodeInfo, refusedBy []string) {
	for i, info := range nodes {
		zone, ok := info.Node().Labels[r.TopologyKey()]
		if !ok {
			a.NoLabel = a.NoLabel || refusedBy[i] == byPolicies
		} else if _, known := a.Refused[zone]; !known && refusedBy[i] == byPolicies {
			if a.Refused == nil {
				a.Refused = map[string]policy.Rule{}
			}
			a.Refused[zone] = policy.Pass
		}
	}
}

// full returns the zones of which other plugins, or constraints over another topology key, refused every node that is eligible
// for the pod, and there is one; true when none of them has what the pod asks for.
func (s *preFilterState) full(r *row, nodes []fwk.NodeInfo, refusedBy []string) map[string]bool {
	full := map[string]bool{}
	open := map[string]bool{}
	for i, info := range nodes {
		node := info.Node()
		zone, ok := node.Labels[r.TopologyKey()]
		if !ok || open[zone] || !counts.Admits(r.Eligible, node) {
			continue
		}
		spreading := refusedBy[i] == byPolicies || refusedBy[i] == Name && !s.refusedOver(node, r.TopologyKey())
		if refusedBy[i] == "" || spreading {
			open[zone] = true
			delete(full, zone)
			continue
		}
		lacks, seen := full[zone]
		full[zone] = (lacks || !seen) && !hasRoom(info, s.verdicts.requests)
	}
	return full
}

// refusedOver reports whether a constraint over another topology key refuses a node.
func (s *preFilterState) refusedOver(node *v1.Node, otherThan string) bool {
	for i := range s.constraints {
		if s.constraints[i].topologyKey != otherThan && s.checkConstraint(i, node) != fits {
			return true
		}
	}
	return false
}
