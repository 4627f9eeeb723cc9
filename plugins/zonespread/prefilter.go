package zonespread

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/zonespread/counts"
)

var (
	_ fwk.PreFilterPlugin     = (*ZoneSpread)(nil)
	_ fwk.PreFilterExtensions = (*ZoneSpread)(nil)
)

const preFilterStateKey fwk.StateKey = "PreFilter" + Name

// preFilterState is what is known about a pod's hard constraints and policies. AddPod and RemovePod change copies of
// it.
type preFilterState struct {
	constraints []constraint
	self        []bool        // whether the pod matches the constraint's selector
	views       []counts.View // matching pods per domain, by constraint
	policies    *podPolicies  // nil if no policy applies to the pod
	cloned      bool          // it is of a copy of the cycle's state
}

// Clone copies what AddPod and RemovePod change.
func (s *preFilterState) Clone() fwk.StateData {
	clone := &preFilterState{
		constraints: s.constraints, self: s.self, views: make([]counts.View, len(s.views)),
		policies: s.policies.clone(), cloned: true,
	}
	for i := range s.views {
		clone.views[i] = s.views[i].Clone()
	}
	return clone
}

// readState returns the state that an earlier extension point of the cycle has written.
func readState[T fwk.StateData](cycleState fwk.CycleState, key fwk.StateKey) (T, error) {
	var zero T
	data, err := cycleState.Read(key)
	if err != nil {
		return zero, fmt.Errorf("reading %q from cycleState: %w", key, err)
	}
	state, ok := data.(T)
	if !ok {
		return zero, fmt.Errorf("reading %q from cycleState: got a %T", key, data)
	}
	return state, nil
}

// rescores reports whether PreScore is called for the hint of a batch, for a pod that has policies: the framework
// does that with a copy of the cycle's state, and scores by the state itself.
func rescores(cycleState fwk.CycleState) bool {
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	return err == nil && s.cloned && s.policies != nil
}

// policiesOf returns the pod's policies as PreFilter evaluated them in this cycle; nil if none applies.
func policiesOf(cycleState fwk.CycleState) *podPolicies {
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	if err != nil {
		return nil // nothing is hard, and there are no policies
	}
	return s.policies
}

// PreFilter counts for the pod's hard constraints and its policies. It is Skip when nothing is hard. It never narrows
// the nodes: that would hide the others from preemption.
func (pl *ZoneSpread) PreFilter(
	ctx context.Context, cycleState fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	if pl.leader != nil {
		pl.leader.Cycle()
	}
	if pl.ignores(pod) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	start := time.Now()
	constraints, err := pl.constraintsOf(pod, v1.DoNotSchedule)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	policies, refused := pl.policiesFor(ctx, pod)
	if refused != nil {
		return nil, refused
	}
	if len(constraints) == 0 && policies == nil {
		return nil, fwk.NewStatus(fwk.Skip)
	}

	state := &preFilterState{
		constraints: constraints,
		self:        make([]bool, len(constraints)),
		views:       make([]counts.View, len(constraints)),
		policies:    policies,
	}
	queries := &queries{}
	tables := make([]*counts.Table, len(constraints))
	keys := topologyKeys(constraints)
	for i := range constraints {
		queries.add(constraints[i].query(pod.Namespace, keys), &tables[i])
		state.self[i] = constraints[i].selector.Matches(labels.Set(pod.Labels))
	}
	pl.countPolicies(ctx, cycleState, nodes, policies, queries)
	for i := range constraints {
		state.views[i] = counts.NewView(tables[i])
	}
	if policies != nil && cycleState.IsPodGroupSchedulingCycle() {
		pl.noteGroupCycle(pod, policies)
	}
	cycleState.Write(preFilterStateKey, state)
	preFilterDuration.Observe(time.Since(start).Seconds())
	if len(constraints) == 0 && !policies.hard() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// ignores reports whether the pod runs already, and is scheduled only to make room for its resize.
func (pl *ZoneSpread) ignores(pod *v1.Pod) bool {
	return pl.features.skipDeferredResizing && resource.IsPodResizeDeferred(pod)
}

// PreFilterExtensions returns the plugin itself.
func (pl *ZoneSpread) PreFilterExtensions() fwk.PreFilterExtensions { return pl }

// AddPod counts a pod that the framework assumes on a node.
func (pl *ZoneSpread) AddPod(ctx context.Context, cycleState fwk.CycleState, podToSchedule *v1.Pod,
	podInfoToAdd fwk.PodInfo, nodeInfo fwk.NodeInfo,
) *fwk.Status {
	return pl.updateWithPod(ctx, cycleState, podToSchedule, podInfoToAdd.GetPod(), nodeInfo.Node(), 1)
}

// RemovePod takes back a pod that the framework assumes gone from a node.
func (pl *ZoneSpread) RemovePod(ctx context.Context, cycleState fwk.CycleState, podToSchedule *v1.Pod,
	podInfoToRemove fwk.PodInfo, nodeInfo fwk.NodeInfo,
) *fwk.Status {
	return pl.updateWithPod(ctx, cycleState, podToSchedule, podInfoToRemove.GetPod(), nodeInfo.Node(), -1)
}

// updateWithPod changes the state of the cycle as if the count of changed on the node went up or down.
func (pl *ZoneSpread) updateWithPod(
	ctx context.Context, cycleState fwk.CycleState, podToSchedule, changed *v1.Pod, node *v1.Node, pods int,
) *fwk.Status {
	s, err := readState[*preFilterState](cycleState, preFilterStateKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	// A terminating pod was not counted, so that its removal changes nothing.
	if changed.DeletionTimestamp != nil || changed.Namespace != podToSchedule.Namespace || node == nil {
		return nil
	}
	if err := pl.updatePolicies(ctx, cycleState, s.policies, changed, node, pods); err != nil {
		return fwk.AsStatus(err)
	}
	if !hasAllKeys(node.Labels, s.constraints) {
		return nil
	}
	for i := range s.constraints {
		c := &s.constraints[i]
		if c.selector.Matches(labels.Set(changed.Labels)) && counts.Admits(c.eligibility, node) {
			s.views[i].Add(node.Labels[c.topologyKey], pods)
		}
	}
	return nil
}
