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
	v := verdictsOf(cycleState)
	if v == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
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
		attempts[i] = serve.Attempt{Applied: r.applied, Answer: &r.answer, Refused: r.table.Refused(), Held: r.held}
		if r.applied.Hard() {
			for _, info := range nodes {
				if r.table.Check(info.Node().Labels) == policy.NoLabel {
					attempts[i].NoLabel = true
					break
				}
			}
		}
		if proves {
			attempts[i].Full = r.full(nodes, refusedBy, v.requests)
		}
	}
	pl.shared.policies.Attempted(pod, v.requests, attempts)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// noNode is a name that no node has.
const noNode = "\x00"

// lookAt returns which plugin refused each node, empty for none that says so. The cycle proves nothing about zones when some
// node was not looked at: a PreFilter plugin refused the pod altogether, or limited the nodes to some.
func lookAt(nodes []fwk.NodeInfo, statuses fwk.NodeToStatusReader) (refusedBy []string, proves bool) {
	// A node without a status of its own has the one that is for all such nodes.
	absent := statuses.Get(noNode)
	refusedBy = make([]string, len(nodes))
	for i, info := range nodes {
		status := statuses.Get(info.Node().Name)
		if status == absent {
			return nil, false
		}
		if status.IsRejected() {
			refusedBy[i] = status.Plugin()
		}
	}
	return refusedBy, true
}

// full returns the zones of which other plugins refused every node that is eligible for the pod, and there is one; true when
// none of them has what the pod asks for.
func (r *row) full(nodes []fwk.NodeInfo, refusedBy []string, requests policy.Requests) map[string]bool {
	full := map[string]bool{}
	open := map[string]bool{}
	for i, info := range nodes {
		node := info.Node()
		zone, ok := node.Labels[r.applied.TopologyKey()]
		if !ok || open[zone] || !counts.Admits(r.eligible, node) {
			continue
		}
		if refusedBy[i] == "" || refusedBy[i] == Name {
			open[zone] = true
			delete(full, zone)
			continue
		}
		lacks, seen := full[zone]
		full[zone] = (lacks || !seen) && !fits(info, requests)
	}
	return full
}
