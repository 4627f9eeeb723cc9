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
	// Owned says what each claim's pods, of those that Requested counts, ask for.
	Owned Owned
}

// Verdict is the answer to a Question. Of a pod that fits on a node where its claim holds something it says:
//
//	claim's Use               Uses                                      Takes
//	UseLast, not inclusive    if it lacks room beside what is unused    the slots that make up for it
//	UseLast, of amounts       if it lacks room beside what is unused    nothing, as of all inclusive claims
//	UseFirst                  if a slot is unused                       nothing
//	UseOnly                   always                                    nothing
//
// What is unused counts its own claim's, and not that of claims of a lower priority, whose room it may take.
type Verdict struct {
	Fits bool
	// Uses means that the pod uses a part of what its claim holds, and Takes is by how much it lowers that.
	Uses  bool
	Takes ledger.Resources
	// Lacks is the resource of which there is too little, and By the claim that is in the way. Both are empty when the pod
	// fits, and when it has UseOnly and too little of its own claim's is unused.
	Lacks v1.ResourceName
	By    *Claim
}

// Fit reports whether the holds of a node leave room for a pod:
//
//	request + unused amounts that it may not use <= allocatable - requested
//
// in each resource that is requested and held. What its own claim holds is not in its way; with UseOnly the request has
// to lie in what is unused of it. n may be nil, where nothing is held. Fit allocates nothing for a pod
// without a claim.
func (n *NodeHolds) Fit(q *Question) Verdict {
	who := q.Who
	if who.IgnoreHolds {
		return Verdict{Fits: true}
	}
	if n == nil || len(n.Holds) == 0 { // nothing is in the way, and nothing there is the pod's
		return Verdict{Fits: who.Use != UseOnly || who.Claim == ""}
	}
	if who.Use == UseLast && n.fitsBesideAll(q) {
		return Verdict{Fits: true}
	}
	s := shortage{own: n.Of(who.Claim)}
	if s.own != nil {
		s.ownUnused = s.own.Unused(q.Owned)
	}
	if who.Use == UseOnly && who.Claim != "" && !s.own.includes(q.Request, &s.ownUnused) {
		return Verdict{}
	}
	others := n.unusedOfOthers(q, s.own)
	if !s.checkResource(v1.ResourcePods, 1, others.Pods, q.Allocatable.Pods-q.Requested.Pods) ||
		!s.checkResource(v1.ResourceCPU, q.Request.MilliCPU, others.MilliCPU, q.Allocatable.MilliCPU-q.Requested.MilliCPU) ||
		!s.checkResource(v1.ResourceMemory, q.Request.Memory, others.Memory, q.Allocatable.Memory-q.Requested.Memory) ||
		!s.checkResource(v1.ResourceEphemeralStorage, q.Request.EphemeralStorage, others.EphemeralStorage,
			q.Allocatable.EphemeralStorage-q.Requested.EphemeralStorage) {
		return Verdict{Lacks: s.lacks, By: n.inTheWay(q, s.own, s.lacks)}
	}
	for name, request := range q.Request.Scalar {
		others := n.unusedOfOthersOf(name, q, s.own)
		if !s.checkResource(name, request, others, q.Allocatable.Scalar[name]-q.Requested.Scalar[name]) {
			return Verdict{Lacks: name, By: n.inTheWay(q, s.own, name)}
		}
	}
	verdict := Verdict{Fits: true}
	switch { // the table of Verdict
	case s.own == nil:
	case who.Use == UseOnly:
		verdict.Uses = true
	case who.Use == UseFirst:
		verdict.Uses = s.ownUnused.Slots(&s.own.Claim.Slot) > 0
	case s.needsOwn:
		verdict.Uses = true
		if !s.own.Claim.Inclusive() {
			verdict.Takes = s.own.Claim.SlotsAmount(int(s.slots))
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

// shortage is what a pod lacks on a node beside what is held there.
type shortage struct {
	// own is what the pod's claim holds there, nil for nothing, and ownUnused what is unused of it.
	own       *Hold
	ownUnused ledger.Resources
	// lacks is the resource of which the holds of others leave too little.
	lacks v1.ResourceName
	// needsOwn means that the pod needs a part of own, and slots is how many of its slots make up for what the pod lacks.
	needsOwn bool
	slots    int64
}

// checkResource takes one resource into account: a request of it beside what others hold and the room that pods have
// left. It reports false if the others keep the pod off. A resource that is not requested or not held is not checked.
func (s *shortage) checkResource(name v1.ResourceName, request, others, room int64) bool {
	if lacksRoom(request, others, room) {
		s.lacks = name
		return false
	}
	unused := s.ownUnused.Amount(name)
	if unused <= 0 || !lacksRoom(request, others+unused, room) {
		return true
	}
	s.needsOwn = true
	slots := s.ownUnused.Pods // a slot has room for one pod; all of them, if the slots do not name the resource
	if slot := s.own.Claim.Slot.Amount(name); slot > 0 {
		slots = min(slots, ceil(request+others+unused-room, slot))
	}
	s.slots = max(s.slots, slots)
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
