package zonespread

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
)

var _ fwk.FilterPlugin = (*ZoneSpread)(nil)

// Filter refuses a node if the pod there would exceed the maxSkew of a hard constraint, or if one of its policies
// refuses the node's zone. The code is Unschedulable, so that preemption may make room. It is
// UnschedulableAndUnresolvable if the node has no domain for a constraint, or if no eviction could help. A node that
// passes allocates nothing, and one that is refused only its status.
func (pl *ZoneSpread) Filter(
	ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo,
) *fwk.Status {
	if pl.ignores(pod) {
		return nil
	}
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node := nodeInfo.Node()
	for i := range s.constraints {
		switch s.checkConstraint(i, node) {
		case fits:
		case noDomain:
			if logger := klog.FromContext(ctx).V(5); logger.Enabled() {
				logger.Info("Node lacks a topology key", "pod", klog.KObj(pod), "node", klog.KObj(node), "topologyKey",
					s.constraints[i].topologyKey)
			}
			return copyOf(pl.noDomain)
		case tooSkewed:
			if logger := klog.FromContext(ctx).V(5); logger.Enabled() {
				c, view := &s.constraints[i], &s.views[i]
				domain := node.Labels[c.topologyKey]
				logger.Info("Node would exceed maxSkew", "pod", klog.KObj(pod), "node", klog.KObj(node),
					"topologyKey", c.topologyKey, "domain", domain, "matching", view.Count(domain),
					"self", s.self[i], "minimum", view.Minimum(), "maxSkew", c.maxSkew)
			}
			return copyOf(pl.tooSkewed)
		}
	}
	if refusal := s.policies.check(node); refusal != nil {
		return copyOf(refusal)
	}
	return nil
}

// copyOf returns a copy of a status, since the framework writes to those that it gets. The reasons are shared: they are
// never written to in place.
func copyOf(status *fwk.Status) *fwk.Status {
	copied := *status
	return &copied
}

// fit is whether a pod fits on a node by one of its constraints.
type fit uint8

const (
	fits      fit = iota
	noDomain      // the node lacks the topology key
	tooSkewed     // the pod would exceed maxSkew
)

// checkConstraint returns whether the pod fits on a node by its i-th constraint.
func (s *preFilterState) checkConstraint(i int, node *v1.Node) fit {
	c, view := &s.constraints[i], &s.views[i]
	minimum := counts.GlobalMinimum(view.Minimum(), view.Domains(), int(c.minDomains))
	// If the pod fits in the fullest domain it fits in all, and the node's domain need not be looked up.
	if fullest, known := view.Maximum(); known && counts.Fits(fullest, s.self[i], minimum, c.maxSkew) {
		return fits
	}
	domain, ok := view.Find(node)
	if !ok {
		return noDomain
	}
	if !counts.Fits(view.CountAt(domain, node), s.self[i], minimum, c.maxSkew) {
		return tooSkewed
	}
	return fits
}
