package permitgate

import (
	"cmp"
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/plan"
)

// Room that becomes free is seen first by whichever pod is next in the queue. So that a starving gang gets it all the same, each
// scheduling cycle looks on its behalf before the cycle's own pod does (ADR 156). Filter comes later in the same cycle, so that
// no pod can get between.

const (
	// aheadTries is how many starving gangs are planned at most ahead of a pod.
	aheadTries = 2
	// aheadNodes is how many nodes are looked at one by one whether they have got room for a member, before a plan is made.
	aheadNodes = 64
)

// ahead is what scheduling cycles have last seen of the nodes, while a gang starves. Only they use it, and there is one at a time.
type ahead struct {
	nodes map[string]*room
	freed map[string]struct{} // the nodes that have got room which no starving gang has looked at
	cycle int                 // counts the calls of update
}

// room is what a node has left.
type room struct {
	generation int64
	node       *v1.Node
	amounts    []int64 // of what roomNames names
	scalar     map[v1.ResourceName]int64
	seen       int // the cycle in which the node was there last
}

var roomNames = []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods}

func roomOf(info fwk.NodeInfo) *room {
	allocatable, requested := info.GetAllocatable(), info.GetRequested()
	r := &room{generation: info.GetGeneration(), node: info.Node(), amounts: make([]int64, len(roomNames))}
	leftOn(info, roomNames, r.amounts)
	for name, amount := range allocatable.GetScalarResources() {
		if r.scalar == nil {
			r.scalar = map[v1.ResourceName]int64{}
		}
		r.scalar[name] = amount - requested.GetScalarResources()[name]
	}
	return r
}

// more reports whether the node may take a pod that it did not take before.
func (r *room) more(than *room) bool {
	for j := range r.amounts {
		if r.amounts[j] > than.amounts[j] {
			return true
		}
	}
	for name, amount := range r.scalar {
		if amount > than.scalar[name] {
			return true
		}
	}
	return r.node != than.node && nodeMayFitMore(than.node, r.node)
}

// update notes which nodes have got room since the last cycle; at first it is all of them.
func (a *ahead) update(nodes []fwk.NodeInfo) {
	if a.nodes == nil {
		a.nodes, a.freed = make(map[string]*room, len(nodes)), map[string]struct{}{}
	}
	a.cycle++
	for _, info := range nodes {
		name := info.Node().Name
		was := a.nodes[name]
		if was != nil && was.generation == info.GetGeneration() {
			was.seen = a.cycle
			continue
		}
		is := roomOf(info)
		is.seen = a.cycle
		if was == nil || is.more(was) {
			a.freed[name] = struct{}{}
		}
		a.nodes[name] = is
	}
	if len(a.nodes) == len(nodes) {
		return
	}
	for name, r := range a.nodes {
		if r.seen != a.cycle {
			delete(a.nodes, name)
			delete(a.freed, name)
		}
	}
}

// helps reports whether a node that has got room may take one of the members. It looks at resources only.
func (a *ahead) helps(members []plan.Member) bool {
	if len(a.freed) > aheadNodes {
		return true
	}
	free := make([]int64, len(roomNames))
	for name := range a.freed {
		for _, m := range members {
			copy(free, a.nodes[name].amounts)
			plan.Subtract(m.Pod, roomNames, free)
			if slices.Min(free) >= 0 {
				return true
			}
		}
	}
	return false
}

// collectAhead has starving gangs take what has become free, before the pod of the scheduling cycle can. It must not be
// called in a pod-group cycle, whose snapshot changes without its generations.
func (p *PermitGate) collectAhead(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) {
	s := p.shared
	if s.starves.Load() == 0 {
		s.ahead = ahead{}
		return
	}
	s.ahead.update(nodes)
	gangs, holds, all := s.starvingGangs()
	if all {
		for _, info := range nodes {
			s.ahead.freed[info.Node().Name] = struct{}{}
		}
	}
	if len(s.ahead.freed) == 0 || holds == nil {
		return
	}
	own, _ := gangOf(pod)
	for _, key := range gangs {
		if key == own {
			return // it plans for itself, and those behind it come after
		}
		t := s.newTask(key, nil)
		if outranks(pod, t.priority) {
			return // the room is the pod's if it wants it; what is left is for the next cycle
		}
		if !s.ahead.helps(t.request.Members) {
			continue
		}
		cluster := p.prepare(ctx, state, &t, nodes)
		logger := klog.FromContext(ctx).WithValues("podGroup", key)
		result := plan.Make(t.request)
		if s.keepAhead(logger, key, &t, holdSlots(result.Slots, cluster.nodes), result.Refusal == nil) {
			holds.Placed(state, pod)
			break
		}
	}
	clear(s.ahead.freed)
}

// outranks reports whether a pod does not mind what a gang of this priority holds. Pods of DaemonSets belong to their node.
func outranks(pod *v1.Pod, priority int32) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return corev1.PodPriority(pod) > priority || owner != nil && owner.Kind == "DaemonSet"
}

// starvingGangs returns whom freed room is for, the oldest first: none behind one that collects already, since only one does at a time. all
// tells that less is held than in the last cycle, so that any node may have got room.
func (s *Shared) starvingGangs() (gangs []types.NamespacedName, holds Holds, all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, s.heldLess = s.heldLess, false
	oldest := make([]*entry, 0, len(s.starving))
	for _, e := range s.starving {
		if e.gang.Phase() == gang.Backoff || e.gang.Phase() == gang.Gathering {
			oldest = append(oldest, e)
		}
	}
	slices.SortFunc(oldest, func(a, b *entry) int {
		return cmp.Or(a.gang.ReadySince().Compare(b.gang.ReadySince()), cmp.Compare(a.groupUID(), b.groupUID()))
	})
	for _, e := range oldest[:min(len(oldest), aheadTries)] {
		gangs = append(gangs, e.key)
		if e.held != nil {
			break
		}
	}
	return gangs, s.holdsLocked(), all
}

// keepAhead has a starving gang hold the slots that were found for it, if they are more than it has, and reports whether it does. When they
// are all that it needs, its backoff ends.
func (s *Shared) keepAhead(logger klog.Logger, key types.NamespacedName, t *task, found []HoldSlot, whole bool) (kept bool) {
	if len(found) == 0 {
		return false
	}
	s.change(key, func(e *entry, now time.Time) {
		phase := e.gang.Phase()
		if phase != gang.Backoff && phase != gang.Gathering || !e.collecting.starving || e.held != nil && (!e.held.collects || len(e.held.slots) >= len(found)) {
			return
		}
		if kept = s.collectLocked(logger, e, t, found, now); kept && whole {
			e.gang.Room(now)
		}
	})
	return kept
}

// starvesLocked keeps account of the gangs that starve.
func (s *Shared) starvesLocked(e *entry) {
	switch e.gang.Phase() {
	case gang.Pending, gang.Releasing, gang.Whole:
		e.collecting.starving = false
	case gang.Gathering, gang.Waiting, gang.Backoff:
	}
	if _, was := s.starving[e.key]; was == e.collecting.starving {
		return
	}
	if e.collecting.starving {
		s.starving[e.key] = e
	} else {
		delete(s.starving, e.key)
	}
	s.starves.Store(int32(len(s.starving)))
}
