package holds

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Asker is a pod that asks for room.
type Asker struct {
	// Priority lets the pod take the room of claims with a lower priority.
	Priority int32
	// Claim is the claim whose room the pod may use; empty for none.
	Claim types.UID
	Use   Use
	// IgnoreHolds is for pods that no hold keeps off.
	IgnoreHolds bool
}

// Question is a pod on a node.
type Question struct {
	Who     *Asker
	Request *ledger.Resources
	// Allocatable and Requested are the node's, without the pod.
	Allocatable, Requested *ledger.Resources
	// Owned is of the pods that Requested counts.
	Owned Owned
}

// Verdict is the answer to a Question.
type Verdict struct {
	Fits bool
	// Uses means that the pod uses a part of what its claim holds. With UseLast it does so where it lacks room beside all that is held, with
	// UseFirst where a slot is unused, and with UseOnly wherever it fits.
	Uses bool
	// Takes is by how much the pod lowers what its claim holds: a number of slots, or nothing if the claim is inclusive.
	Takes ledger.Resources
	// Lacks is the resource of which there is too little, and By the claim that is in the way. Both are empty when the pod
	// fits, and when it may run in what its claim holds only and there is too little.
	Lacks v1.ResourceName
	By    *Claim
}

// Fit reports whether the holds of a node leave room for a pod:
//
//	request + unused amounts that it may not use <= allocatable - requested
//
// in each resource that is requested and held. What its own claim holds is not in its way; with UseOnly the request has to lie in what is
// unused of it. n may be nil, where nothing is held. Fit allocates nothing for a pod that uses nothing.
func (n *NodeHolds) Fit(q *Question) Verdict {
	who := q.Who
	if who.IgnoreHolds {
		return Verdict{Fits: true}
	}
	if n == nil || len(n.Holds) == 0 {
		return Verdict{Fits: who.Use != UseOnly || who.Claim == ""}
	}
	if who.Use == UseLast && n.fitsBesideAll(q) {
		return Verdict{Fits: true}
	}
	own := n.Of(who.Claim)
	var mine ledger.Resources
	if own != nil {
		mine = own.Unused(q.Owned)
	}
	if who.Use == UseOnly && who.Claim != "" && !own.includes(q.Request, &mine) {
		return Verdict{}
	}
	short := shortage{own: own, mine: &mine}
	others := n.unusedOfOthers(q, own)
	if !short.checkResource(v1.ResourcePods, 1, others.Pods, q.Allocatable.Pods-q.Requested.Pods) ||
		!short.checkResource(v1.ResourceCPU, q.Request.MilliCPU, others.MilliCPU, q.Allocatable.MilliCPU-q.Requested.MilliCPU) ||
		!short.checkResource(v1.ResourceMemory, q.Request.Memory, others.Memory, q.Allocatable.Memory-q.Requested.Memory) ||
		!short.checkResource(v1.ResourceEphemeralStorage, q.Request.EphemeralStorage, others.EphemeralStorage,
			q.Allocatable.EphemeralStorage-q.Requested.EphemeralStorage) {
		return Verdict{Lacks: short.of, By: n.inTheWay(q, own, short.of)}
	}
	for name, request := range q.Request.Scalar {
		others := n.unusedOfOthersOf(name, q, own)
		if !short.checkResource(name, request, others, q.Allocatable.Scalar[name]-q.Requested.Scalar[name]) {
			return Verdict{Lacks: name, By: n.inTheWay(q, own, name)}
		}
	}
	verdict := Verdict{Fits: true}
	switch {
	case own == nil:
	case who.Use == UseOnly:
		verdict.Uses = true
	case who.Use == UseFirst:
		verdict.Uses = mine.Slots(&own.Claim.Slot) > 0
	default:
		verdict.Uses = short.of != ""
		if verdict.Uses && !own.Claim.Inclusive() {
			verdict.Takes = own.Claim.Slots(int(short.slots))
		}
	}
	return verdict
}

// fitsBesideAll reports whether the request fits beside all that is held on the node, used or not.
func (n *NodeHolds) fitsBesideAll(q *Question) bool {
	if lacksRoom(1, n.amounts.Pods, q.Allocatable.Pods-q.Requested.Pods) ||
		lacksRoom(q.Request.MilliCPU, n.amounts.MilliCPU, q.Allocatable.MilliCPU-q.Requested.MilliCPU) ||
		lacksRoom(q.Request.Memory, n.amounts.Memory, q.Allocatable.Memory-q.Requested.Memory) ||
		lacksRoom(q.Request.EphemeralStorage, n.amounts.EphemeralStorage, q.Allocatable.EphemeralStorage-q.Requested.EphemeralStorage) {
		return false
	}
	for name, request := range q.Request.Scalar {
		if lacksRoom(request, n.amounts.Scalar[name], q.Allocatable.Scalar[name]-q.Requested.Scalar[name]) {
			return false
		}
	}
	return true
}

// lacksRoom reports whether a request has too little room beside what is held.
func lacksRoom(request, held, room int64) bool {
	return request > 0 && held > 0 && request+held > room
}

// includes reports whether a request lies in what is unused of a hold, in the resources that its slots name.
func (h *Hold) includes(request, unused *ledger.Resources) bool {
	if h == nil || unused.Pods < 1 {
		return false
	}
	for name := range h.Claim.Slot.Named() {
		if name != v1.ResourcePods && request.Amount(name) > unused.Amount(name) {
			return false
		}
	}
	return true
}

// shortage is what a pod lacks beside all that is held.
type shortage struct {
	own  *Hold
	mine *ledger.Resources
	// of is the first resource of which the pod needs a part of its own claim, or the one that keeps it off. slots is how many
	// slots make up for the shortage.
	of    v1.ResourceName
	slots int64
}

// checkResource takes one resource into account: a request of it beside what others hold and the room that pods have left. It reports false
// if the others keep the pod off. A resource that is not requested or not held is not checked.
func (s *shortage) checkResource(name v1.ResourceName, request, others, room int64) bool {
	if lacksRoom(request, others, room) {
		s.of = name
		return false
	}
	mine := s.mine.Amount(name)
	if mine <= 0 || !lacksRoom(request, others+mine, room) {
		return true
	}
	if s.of == "" {
		s.of = name
	}
	need := s.mine.Pods
	if slot := s.own.Claim.Slot.Amount(name); slot > 0 {
		need = min(need, ceil(request+others+mine-room, slot))
	}
	s.slots = max(s.slots, need)
	return true
}

// inTheWay returns the first claim that the pod may not use and of which some of a resource is unused.
func (n *NodeHolds) inTheWay(q *Question, own *Hold, name v1.ResourceName) *Claim {
	for i := range n.Holds {
		if h := &n.Holds[i]; h != own && !q.overrides(h.Claim) && h.UnusedOf(name, q.Owned) > 0 {
			return h.Claim
		}
	}
	return nil
}

// overrides reports whether the pod may take the room of a claim that is not its own.
func (q *Question) overrides(c *Claim) bool { return c.Priority < q.Who.Priority }

// unusedOfOthers returns what is unused of the holds that the pod must respect, without scalar resources.
func (n *NodeHolds) unusedOfOthers(q *Question, own *Hold) (sum ledger.Resources) {
	for i := range n.Holds {
		if h := &n.Holds[i]; h != own && !q.overrides(h.Claim) {
			unused := h.unusedWithoutScalars(q.Owned)
			addWithoutScalars(&sum, &unused, 1)
		}
	}
	return sum
}

// unusedOfOthersOf is unusedOfOthers for a scalar resource.
func (n *NodeHolds) unusedOfOthersOf(name v1.ResourceName, q *Question, own *Hold) (sum int64) {
	for i := range n.Holds {
		if h := &n.Holds[i]; h != own && !q.overrides(h.Claim) {
			sum += h.UnusedOf(name, q.Owned)
		}
	}
	return sum
}

// unusedWithoutScalars is Unused without scalar resources. It allocates nothing.
func (h *Hold) unusedWithoutScalars(owned Owned) ledger.Resources {
	unused := ledger.Resources{
		MilliCPU: h.Amount.MilliCPU, Memory: h.Amount.Memory, EphemeralStorage: h.Amount.EphemeralStorage, Pods: h.Amount.Pods,
	}
	if h.Claim.Inclusive() {
		used := owned.of(h.Claim.UID)
		addWithoutScalars(&unused, &used, -1)
		unused = unused.Positive()
	}
	return unused
}

// addWithoutScalars adds b to a, times times, scalar resources aside.
func addWithoutScalars(a, b *ledger.Resources, times int64) {
	a.MilliCPU += times * b.MilliCPU
	a.Memory += times * b.Memory
	a.EphemeralStorage += times * b.EphemeralStorage
	a.Pods += times * b.Pods
}
