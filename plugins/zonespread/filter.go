package zonespread

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
	"zonewise.dev/plugins/zonespread/policies"
	"zonewise.dev/plugins/zonespread/skew"
)

var (
	_ fwk.PreFilterPlugin     = (*ZoneSpread)(nil)
	_ fwk.PreFilterExtensions = (*ZoneSpread)(nil)
	_ fwk.FilterPlugin        = (*ZoneSpread)(nil)
)

// preFilterState is what Filter knows about a pod's hard constraints and policies.
type preFilterState struct {
	constraints []constraint
	self        []bool        // whether the pod matches the constraint's selector
	views       []counts.View // matching pods per domain, by constraint
	refusals    *refusals
	policies    *policies.Verdicts // nil without policies
}

// Clone copies what AddPod and RemovePod change.
func (s *preFilterState) Clone() fwk.StateData {
	clone := &preFilterState{constraints: s.constraints, self: s.self, views: make([]counts.View, len(s.views)), refusals: s.refusals, policies: s.policies.Clone()}
	for i := range s.views {
		clone.views[i] = s.views[i].Clone()
	}
	return clone
}

// PreFilter counts for the pod's hard constraints and its policies. It is Skip when nothing is hard. It never narrows the
// nodes: that would hide the others from preemption.
func (pl *ZoneSpread) PreFilter(ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if pl.ignores(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	start := time.Now()
	constraints, err := pl.constraintsOf(pod, v1.DoNotSchedule)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	verdicts := pl.judge(ctx, cycleState, pod, nodes)
	if len(constraints) == 0 && !verdicts.Hard() {
		return nil, fwk.NewStatus(fwk.Skip)
	}

	state := &preFilterState{
		policies:    verdicts,
		constraints: constraints,
		self:        make([]bool, len(constraints)),
		views:       make([]counts.View, len(constraints)),
		refusals:    &refusals{},
	}
	queries := make([]counts.Query, len(constraints))
	keys := topologyKeys(constraints)
	for i := range constraints {
		queries[i] = constraints[i].query(pod.Namespace, keys)
		state.self[i] = constraints[i].selector.Matches(labels.Set(pod.Labels))
	}
	if len(queries) > 0 {
		for i, table := range pl.count(ctx, cycleState, nodes, queries) {
			state.views[i] = counts.NewView(table)
		}
	}
	cycleState.Write(preFilterStateKey, state)
	preFilterDuration.Observe(time.Since(start).Seconds())
	return nil, nil
}

// ignores tells whether the pod runs already and is here only to make room for its resize.
func (pl *ZoneSpread) ignores(pod *v1.Pod) bool {
	return pl.features.skipDeferredResizing && resource.IsPodResizeDeferred(pod)
}

// PreFilterExtensions returns the plugin itself.
func (pl *ZoneSpread) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// AddPod counts a pod that the framework assumes on a node.
func (pl *ZoneSpread) AddPod(_ context.Context, cycleState fwk.CycleState, podToSchedule *v1.Pod, podInfoToAdd fwk.PodInfo, nodeInfo fwk.NodeInfo) *fwk.Status {
	return tryOut(cycleState, podToSchedule, podInfoToAdd.GetPod(), nodeInfo.Node(), 1)
}

// RemovePod takes back a pod that the framework assumes gone from a node.
func (pl *ZoneSpread) RemovePod(_ context.Context, cycleState fwk.CycleState, podToSchedule *v1.Pod, podInfoToRemove fwk.PodInfo, nodeInfo fwk.NodeInfo) *fwk.Status {
	return tryOut(cycleState, podToSchedule, podInfoToRemove.GetPod(), nodeInfo.Node(), -1)
}

// tryOut changes the state of the cycle as if the count of changed on the node went up or down.
func tryOut(cycleState fwk.CycleState, podToSchedule, changed *v1.Pod, node *v1.Node, pods int) *fwk.Status {
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	s.policies.Add(changed, node, int64(pods))
	// A terminating pod was not counted, so that its removal changes nothing.
	if changed.DeletionTimestamp != nil || changed.Namespace != podToSchedule.Namespace || node == nil {
		return nil
	}
	if !hasAllKeys(node.Labels, s.constraints) {
		return nil
	}
	for i := range s.constraints {
		c := &s.constraints[i]
		if !c.selector.Matches(labels.Set(changed.Labels)) {
			continue
		}
		if c.eligibility != nil && !c.eligibility.Eligible(node) {
			continue
		}
		s.views[i].Add(node.Labels[c.topologyKey], pods)
	}
	return nil
}

// Filter refuses a node when the pod on it would exceed the maxSkew of one of its hard constraints. The
// code is Unschedulable, so that preemption may make room, and UnschedulableAndUnresolvable when the node
// has no domain for one of the constraints. Statuses are made in blocks; apart from that it allocates nothing.
func (pl *ZoneSpread) Filter(ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodeInfo fwk.NodeInfo) *fwk.Status {
	if pl.ignores(pod) {
		return nil
	}
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node := nodeInfo.Node()
	for i := range s.constraints {
		c := &s.constraints[i]
		view := &s.views[i]
		minimum := skew.GlobalMinimum(view.Minimum(), view.Domains(), int(c.minDomains))
		// Where the fullest domain fits all do, and the node's, a look at memory elsewhere, need not be found.
		if fullest, known := view.Maximum(); known && skew.Fits(fullest, s.self[i], minimum, c.maxSkew) {
			continue
		}
		domain, ok := view.Find(node)
		if !ok {
			if logger := klog.FromContext(ctx).V(5); logger.Enabled() {
				logger.Info("Node lacks a topology key", "pod", klog.KObj(pod), "node", klog.KObj(node), "topologyKey", c.topologyKey)
			}
			return s.refusals.like(pl.noDomain)
		}
		matching := view.CountAt(domain, node)
		if !skew.Fits(matching, s.self[i], minimum, c.maxSkew) {
			if logger := klog.FromContext(ctx).V(5); logger.Enabled() {
				logger.Info("Node would exceed maxSkew", "pod", klog.KObj(pod), "node", klog.KObj(node), "topologyKey", c.topologyKey,
					"domain", node.Labels[c.topologyKey], "matching", matching, "self", s.self[i], "minimum", minimum, "maxSkew", c.maxSkew)
			}
			return s.refusals.like(pl.tooSkewed)
		}
	}
	if refusal := s.policies.Check(node); refusal != nil {
		return s.refusals.like(refusal)
	}
	return nil
}
