package zonespread

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/serve"
)

var _ fwk.PostFilterPlugin = (*ZoneSpread)(nil)

// PostFilter records which nodes refused the pod and what did, from which its policies learn that a zone is full and
// whether to wake the pod. It changes nothing about the pod; to be called at all it must come before DefaultPreemption
// and PermitGate. The framework does not call it in the cycles of pod groups, see noteGroupCycle.
func (pl *ZoneSpread) PostFilter(
	_ context.Context, cycleState fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader,
) (*fwk.PostFilterResult, *fwk.Status) {
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	if err != nil || s.policies == nil {
		return nil, fwk.NewStatus(fwk.Unschedulable) // the pod has no policies
	}
	nodes, err := pl.lister.NodeInfos().List()
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	refusedBy, conclusive := refusedBy(nodes, statuses)
	attempts := make([]serve.Attempt, len(s.policies.each))
	for i, p := range s.policies.each {
		a := serve.Attempt{Input: p.Input, Scaling: p.table.Scaling(), ClosesAt: p.closesAt, Refused: s.policies.refusedNode(p, nodes, refusedBy)}
		if conclusive {
			a.Full, a.Excluded = s.refusedZones(p, nodes, refusedBy)
		}
		if pod.Status.NominatedNodeName != "" {
			a.Full = nil // what refuses the pod is about to be freed for it
		}
		attempts[i] = a
	}
	pl.shared.policies.Attempted(pod, attempts)
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// noNode is a name that no node has.
const noNode = "\x00"

// refuser is what refused a node.
type refuser uint8

const (
	nothing       refuser = iota // or what is not known
	aPolicy                      // one of the pod's policies
	aConstraint                  // one of the pod's topologySpreadConstraints
	aVolume                      // a volume that no eviction brings to the node
	anotherPlugin                // any other plugin
)

// refusedBy returns what refused each node. The cycle is not conclusive if some node was not looked at, because a
// PreFilter plugin refused the pod or limited the nodes.
func refusedBy(nodes []fwk.NodeInfo, statuses fwk.NodeToStatusReader) (refusers []refuser, conclusive bool) {
	// A node without a status of its own has the one that is for all such nodes.
	absent := statuses.Get(noNode)
	refusers, conclusive = make([]refuser, len(nodes)), true
	for i, info := range nodes {
		status := statuses.Get(info.Node().Name)
		if status == absent {
			conclusive = false
			continue
		}
		refusers[i] = refuserOf(status)
	}
	return refusers, conclusive
}

func refuserOf(status *fwk.Status) refuser {
	switch {
	case !status.IsRejected():
		return nothing
	case status.Plugin() == Name &&
		(status.Message() == ErrReasonConstraintsNotMatch || status.Message() == ErrReasonNodeLabelNotMatch):
		return aConstraint
	case status.Plugin() == Name:
		return aPolicy
	case status.Code() == fwk.UnschedulableAndUnresolvable &&
		(status.Plugin() == "VolumeBinding" || status.Plugin() == "VolumeZone"):
		return aVolume
	}
	return anotherPlugin
}

// refusedNode reports whether a policy refused some node. A refusal that no table explains may be any policy's: the
// framework counts in pods that are nominated to a node when it filters it.
func (p *podPolicies) refusedNode(policy *podPolicy, nodes []fwk.NodeInfo, refusedBy []refuser) bool {
	for i, info := range nodes {
		if refusedBy[i] != aPolicy || !policy.Hard() {
			continue
		}
		nodeLabels := info.Node().Labels
		if !policy.table.Check(nodeLabels).OK() || !slices.ContainsFunc(p.each,
			func(each *podPolicy) bool { return !each.table.Check(nodeLabels).OK() }) {
			return true
		}
	}
	return false
}

// noteGroupCycle records what the policies refuse a pod in the cycle of its pod group, whether or not the group then
// finds other nodes.
func (pl *ZoneSpread) noteGroupCycle(pod *v1.Pod, policies *podPolicies) {
	if !slices.ContainsFunc(policies.each, func(p *podPolicy) bool { return p.table.Refuses() }) {
		return
	}
	attempts := make([]serve.Attempt, len(policies.each))
	for i, p := range policies.each {
		attempts[i] = serve.Attempt{
			Input: p.Input, Refused: p.table.Refuses(), Excluded: p.Excluded, ClosesAt: p.closesAt, Scaling: p.table.Scaling(),
		}
	}
	pl.shared.policies.Attempted(pod, attempts)
}

// refusedZones returns the zones with nodes that are eligible for the pod of which spreading over zones refused none:
// excluded are those in which a volume of the pod refused some, and full are the others. The first plugin that refuses
// a node hides what the later ones would say, so one node that is too small does not make an excluded zone full.
func (s *preFilterState) refusedZones(
	p *podPolicy, nodes []fwk.NodeInfo, refusedBy []refuser,
) (full []string, excluded map[string]bool) {
	type refusals struct{ spreading, volume bool }
	zones := map[string]*refusals{}
	for i, info := range nodes {
		node := info.Node()
		zone, ok := node.Labels[p.TopologyKey()]
		if !ok || !counts.Admits(p.Eligible, node) {
			continue
		}
		z := zones[zone]
		if z == nil {
			z = &refusals{}
			zones[zone] = z
		}
		switch {
		case refusedBy[i] == aVolume:
			z.volume = true
		case refusedBy[i] == anotherPlugin, refusedBy[i] == aConstraint && s.refusedOver(node, p.TopologyKey()):
		default:
			z.spreading = true
		}
	}
	for zone, z := range zones {
		switch {
		case z.spreading:
		case z.volume:
			if excluded == nil {
				excluded = map[string]bool{}
			}
			excluded[zone] = true
		default:
			full = append(full, zone)
		}
	}
	return full, excluded
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
