package permitgate

import (
	"cmp"
	"context"
	"maps"
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
// scheduling cycle looks on its behalf before the cycle's own pod does. Filter comes later in the same cycle, so that
// no pod can get between.

const (
	// aheadTries is how many starving gangs are planned at most ahead of a pod.
	aheadTries = 2
	// aheadNodes is how many nodes are looked at one by one whether they have got room for a member, and planned for by themselves. When
	// there are more, a plan is made for all nodes.
	aheadNodes = 64
)

// ahead is what scheduling cycles have last seen of the nodes, while a gang starves. Only they use it, and there is one at a time.
type ahead struct {
	generations, latest []int64 // of the nodes in their order, and memory for the next ones
	nodes               map[string]*room
	freed               map[string]struct{} // the nodes that have got room which no starving gang has looked at
	// spare are nodes on which a gang has found room that it had no use for then.
	spare map[string]struct{}
}

// room is what a node has left.
type room struct {
	at         int // the node's place in the cycle's list
	generation int64
	node       *v1.Node
	amounts    []int64 // of what roomNames names
	scalar     map[v1.ResourceName]int64
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

// update notes which nodes have got room since the last cycle; at first it is all of them. No two states of any nodes share a generation, so
// that a node with the generation that was at its place in the last cycle is not looked at.
func (a *ahead) update(nodes []fwk.NodeInfo) {
	if a.nodes == nil {
		a.nodes, a.freed, a.spare = make(map[string]*room, len(nodes)), map[string]struct{}{}, map[string]struct{}{}
	}
	// Each generation is a look at memory that nobody has looked at for long. A processor waits for several at once, but only when
	// there is nothing between them: so they are all read first.
	latest := a.latest[:0]
	for _, info := range nodes {
		latest = append(latest, info.GetGeneration())
	}
	known := a.generations
	for i, generation := range latest {
		if i >= len(known) || known[i] != generation {
			a.see(nodes[i], i)
		}
	}
	a.generations, a.latest = latest, known
	if len(a.nodes) == len(nodes) {
		return
	}
	there := make(map[string]struct{}, len(nodes))
	for _, info := range nodes {
		there[info.Node().Name] = struct{}{}
	}
	for name := range a.nodes {
		if _, ok := there[name]; !ok {
			delete(a.nodes, name)
			delete(a.freed, name)
			delete(a.spare, name)
		}
	}
}

// see looks at a node that is new, has changed or has another place.
func (a *ahead) see(info fwk.NodeInfo, at int) {
	name := info.Node().Name
	was := a.nodes[name]
	if was != nil && was.generation == info.GetGeneration() {
		was.at = at
		return
	}
	is := roomOf(info)
	is.at = at
	if was == nil || is.more(was) {
		a.freed[name] = struct{}{}
	}
	a.nodes[name] = is
}

// helps reports whether a node that has got room may take a pod with such needs. It looks at resources only.
func (a *ahead) helps(n *needs) bool {
	if len(a.freed) > aheadNodes {
		return true
	}
	for name := range a.freed {
		if a.nodes[name].takes(n) {
			return true
		}
	}
	return false
}

// some returns the nodes that a gang may have use for: those with the slots that it has, those that have got room, and those that had
// some before. The others had none when they were looked at last.
func (a *ahead) some(nodes []fwk.NodeInfo, slots []string) []fwk.NodeInfo {
	places := make(map[int]struct{}, len(slots)+len(a.freed)+len(a.spare))
	add := func(name string) {
		if r := a.nodes[name]; r != nil {
			places[r.at] = struct{}{}
		}
	}
	for _, name := range slots {
		add(name)
	}
	for name := range a.freed {
		add(name)
	}
	for name := range a.spare {
		add(name)
	}
	found := make([]fwk.NodeInfo, 0, len(places))
	for _, at := range slices.Sorted(maps.Keys(places)) {
		found = append(found, nodes[at])
	}
	return found
}

// looked notes that a plan has looked at the nodes, and where it has found room that the gang does not keep.
func (a *ahead) looked(found []plan.Slot, kept bool) {
	if kept {
		clear(a.spare)
		return
	}
	for _, slot := range found {
		a.spare[slot.Node] = struct{}{}
	}
}

// needs are what pods ask for.
type needs struct {
	names   []v1.ResourceName
	amounts [][]int64 // of each name, every set once
	// plain tells that where the pods may go does not depend on other pods but for their room and ports.
	plain bool
}

// takes reports whether there is room for one of the pods.
func (r *room) takes(n *needs) bool {
	free := make([]int64, len(n.names))
	for j, name := range n.names {
		if at := slices.Index(roomNames, name); at >= 0 {
			free[j] = r.amounts[at]
		} else {
			free[j] = r.scalar[name]
		}
	}
	return slices.ContainsFunc(n.amounts, func(amounts []int64) bool {
		for j := range amounts {
			if amounts[j] > free[j] && amounts[j] > 0 {
				return false
			}
		}
		return true
	})
}

// needsLocked returns what the gang's members ask for, those included that have a node already.
func (e *entry) needsLocked() *needs {
	if e.needs != nil {
		return e.needs
	}
	members := make([]plan.Member, 0, len(e.pods))
	for _, pod := range e.pods {
		members = append(members, plan.Member{Pod: pod})
	}
	e.needs = &needs{names: plan.ResourceNames(members), plain: true}
	for _, m := range members {
		e.needs.plain = e.needs.plain && !looksAtPods(m.Pod)
		amounts := make([]int64, len(e.needs.names))
		plan.Subtract(m.Pod, e.needs.names, amounts)
		for j := range amounts {
			amounts[j] = -amounts[j]
		}
		if !slices.ContainsFunc(e.needs.amounts, func(known []int64) bool { return slices.Equal(known, amounts) }) {
			e.needs.amounts = append(e.needs.amounts, amounts)
		}
	}
	return e.needs
}

// looksAtPods reports whether the pods that a node and its neighbours have decide whether a pod may go there.
func looksAtPods(pod *v1.Pod) bool {
	affinity := pod.Spec.Affinity
	return len(pod.Spec.TopologySpreadConstraints) > 0 || affinity != nil && (affinity.PodAffinity != nil || affinity.PodAntiAffinity != nil)
}

// ruled reports whether rules about zones apply to one of the members.
func (t *task) ruled() bool {
	return t.request.RulesKey != nil && slices.ContainsFunc(t.request.Members, func(m plan.Member) bool { return t.request.RulesKey(m.Pod) != "" })
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
	for _, g := range gangs {
		key := g.key
		if key == own {
			return // it plans for itself, and those behind it come after
		}
		if !s.ahead.helps(g.needs) {
			continue
		}
		t := s.newTask(key, nil)
		if outranks(pod, t.priority) {
			return // the room is the pod's if it wants it; what is left is for the next cycle
		}
		cluster := p.prepare(ctx, state, &t, nodes)
		if len(s.ahead.freed)+len(s.ahead.spare) <= aheadNodes && g.needs.plain && !t.ruled() {
			cluster.nodes = s.ahead.some(nodes, g.slots)
		}
		logger := klog.FromContext(ctx).WithValues("podGroup", key)
		result := plan.Make(t.request)
		kept := s.keepAhead(logger, key, &t, holdSlots(result.Slots, cluster.nodes), result.Refusal == nil)
		s.ahead.looked(result.Slots, kept)
		if kept {
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

// starvingGang is a gang that freed room is for.
type starvingGang struct {
	key   types.NamespacedName
	needs *needs
	slots []string // the nodes of what it has collected
}

// starvingGangs returns whom freed room is for, the oldest first: none behind one that collects already, since only one does at a time. all
// tells that less is held than in the last cycle, so that any node may have got room.
func (s *Shared) starvingGangs() (gangs []starvingGang, holds Holds, all bool) {
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
		g := starvingGang{key: e.key, needs: e.needsLocked()}
		if e.held != nil {
			g.slots = slices.Collect(maps.Values(e.held.slots))
		}
		gangs = append(gangs, g)
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
