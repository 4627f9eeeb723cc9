package permitgate

import (
	"context"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/plan"
)

// Pods can close a node to members by other things than the room that they take. Who does is found out as kube-scheduler's own
// preemption does: by the profile's filters, on copies of the cycle's state and of the node from which pods are removed.

// closers are the plugins for whose refusals single pods of a node can be to blame, whatever others are there.
var closers = sets.New("NodePorts", "InterPodAffinity")

// preFilters is the part of kube-scheduler's framework that a handle does not name.
type preFilters interface {
	RunPreFilterPlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod) (*fwk.PreFilterResult, *fwk.Status, sets.Set[string])
}

// openings tries, in one scheduling cycle, which pods close nodes to members.
type openings struct {
	p          *PermitGate
	state      fwk.CycleState
	cluster    *view
	candidates func(i int, names []v1.ResourceName) []plan.Candidate

	members []opened // in the order in which they were asked for
	nodes   sets.Set[string]
}

// opened are the nodes that open to members like this one, each with the pods that have to go for it.
type opened struct {
	pod    *v1.Pod
	unless map[string][]types.UID
}

// stateFor prepares a cycle's state for a member, and returns the nodes that it may go to; nil when that cannot be said.
func (o *openings) stateFor(ctx context.Context, pod *v1.Pod) (fwk.CycleState, *fwk.PreFilterResult) {
	run, ok := o.p.handle.(preFilters)
	if !ok {
		return nil, nil
	}
	s := o.p.shared
	s.probing = true
	defer func() { s.probing = false }()
	state := o.state.Clone()
	result, status, _ := run.RunPreFilterPlugins(ctx, state, pod)
	if !status.IsSuccess() {
		return nil, nil
	}
	return state, result
}

// ask is plan.Preemption's Openings.
func (o *openings) ask(ctx context.Context, pod *v1.Pod, nodes []int) map[int][]types.UID {
	if len(nodes) == 0 {
		return nil
	}
	state, only := o.stateFor(ctx, pod)
	if state == nil {
		return nil
	}
	found := map[int][]types.UID{}
	mine := opened{pod, map[string][]types.UID{}}
	var mu sync.Mutex // guards found, mine and o.nodes
	o.p.handle.Parallelizer().Until(ctx, len(nodes), func(k int) {
		info := o.cluster.nodes[nodes[k]]
		name := info.Node().Name
		if !only.AllNodes() && !only.NodeNames.Has(name) {
			return
		}
		if unless := o.closing(ctx, state, pod, nodes[k]); len(unless) > 0 {
			mu.Lock()
			defer mu.Unlock()
			found[nodes[k]], mine.unless[name] = unless, unless
			o.nodes.Insert(name)
		}
	}, Name)
	o.members = append(o.members, mine)
	return found
}

// closing returns which candidates of a node close it to a member; none when the node is closed without all of them, too.
func (o *openings) closing(ctx context.Context, state fwk.CycleState, pod *v1.Pod, i int) []types.UID {
	info := o.cluster.nodes[i]
	var gone []fwk.PodInfo
	leaving := sets.New[types.UID]()
	for _, c := range o.candidates(i, nil) {
		if c.Leaving {
			leaving.Insert(c.Pod.UID)
		}
		for _, one := range info.GetPods() {
			if one.GetPod().UID == c.Pod.UID {
				gone = append(gone, one)
			}
		}
	}
	state, node := state.Clone(), info.Snapshot()
	if !o.remove(ctx, state, pod, node, gone) || !o.p.handle.RunFilterPlugins(ctx, state, pod, node).IsSuccess() {
		return nil
	}
	var closing []types.UID
	for _, one := range gone {
		if leaving.Has(one.GetPod().UID) {
			continue
		}
		with, beside := state.Clone(), node.Snapshot()
		beside.AddPodInfo(one)
		if !o.p.handle.RunPreFilterExtensionAddPod(ctx, with, pod, one, beside).IsSuccess() {
			return nil
		}
		if status := o.p.handle.RunFilterPlugins(ctx, with, pod, beside); status.IsRejected() && closers.Has(status.Plugin()) {
			closing = append(closing, one.GetPod().UID)
		}
	}
	return closing
}

// remove takes pods off a copy of their node, and out of a state.
func (o *openings) remove(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo, gone []fwk.PodInfo) bool {
	logger := klog.FromContext(ctx)
	for _, one := range gone {
		if err := node.RemovePod(logger, one.GetPod()); err != nil {
			logger.Error(err, "A pod could not be thought away", "pod", klog.KObj(one.GetPod()))
			return false
		}
		if !o.p.handle.RunPreFilterExtensionRemovePod(ctx, state, pod, one, node).IsSuccess() {
			return false
		}
	}
	return true
}

// accepted reports whether the filters accept the members of a plan on the nodes that open for it, without the pods that are to go. Each
// member is asked for by itself: what members are to each other is the plan's.
func (o *openings) accepted(ctx context.Context, found *plan.Eviction) bool {
	gone := map[int][]types.UID{}
	for _, r := range append(slices.Clone(found.Victims), found.Leaving...) {
		gone[r.Node] = append(gone[r.Node], r.Pod.UID)
	}
	type without struct {
		state fwk.CycleState
		only  *fwk.PreFilterResult
		nodes map[string]fwk.NodeInfo
	}
	classes := map[int]*without{}
	for _, slot := range found.Slots {
		if !o.nodes.Has(slot.Node) {
			continue
		}
		w := classes[slot.Class]
		if w == nil {
			w = &without{nodes: map[string]fwk.NodeInfo{}}
			if w.state, w.only = o.stateFor(ctx, slot.Pod); w.state == nil {
				return false
			}
			for i, pods := range gone {
				info := o.cluster.nodes[i]
				var infos []fwk.PodInfo
				for _, one := range info.GetPods() {
					if slices.Contains(pods, one.GetPod().UID) {
						infos = append(infos, one)
					}
				}
				node := info.Snapshot()
				if !o.remove(ctx, w.state, slot.Pod, node, infos) {
					return false
				}
				w.nodes[info.Node().Name] = node
			}
			classes[slot.Class] = w
		}
		node := w.nodes[slot.Node]
		if node == nil {
			continue // nobody is to go from there
		}
		if !w.only.AllNodes() && !w.only.NodeNames.Has(slot.Node) ||
			!o.p.handle.RunFilterPlugins(ctx, w.state, slot.Pod, node).IsSuccess() {
			return false
		}
	}
	return true
}

// rememberLocked has what is known to refuse nodes end with the pods that are to blame.
func (o *openings) rememberLocked(x *exclusions) {
	for _, m := range o.members {
		x.openWithout(m.pod, m.unless)
	}
}

// openWithout notes without which pods excluded nodes are open. The sets that plans have been given do not change.
func (x *exclusions) openWithout(pod *v1.Pod, unless map[string][]types.UID) {
	needs := needsOf(pod, plan.Signature(pod))
	old := x.byNeeds[needs]
	if old == nil || len(unless) == 0 {
		return
	}
	x.byNeeds[needs] = &plan.Exclusions{Nodes: old.Nodes, Unless: unless}
}
