package holds

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Requester is a pod, as far as it matters to holds.
type Requester struct {
	// Priority lets the pod take the room of claims with a lower priority.
	Priority int32
	// Claim is the claim that the pod is an owner of, and Use when it uses what that holds. Claim is empty for a pod
	// that owns nothing.
	Claim types.UID
	Use   Use
	// IgnoreHolds is for pods that no hold keeps off.
	IgnoreHolds bool
}

// FitInput is a pod and a node.
type FitInput struct {
	Requester *Requester
	// Request is what the pod asks for.
	Request *ledger.Resources
	// Allocatable and Requested are the node's. The pod's own request is not in Requested.
	Allocatable, Requested *ledger.Resources
	// Owned returns the sum of the requests of a claim's pods, of those that Requested counts.
	Owned Owned
}

// FitResult says whether the holds of a node leave room for a pod. If the pod fits and its claim holds something on the
// node:
//
//	claim's Use                    UsesOwn                                   Takes
//	UseLast, slots                 if it lacks room beside what is unused    the slots that make up for it
//	UseLast, amounts (inclusive)   if it lacks room beside what is unused    nothing, as of all inclusive claims
//	UseFirst                       if a slot is unused                       nothing
//	UseOnly                        always                                    nothing
//
// Unused is what is unused of its own claim and of all claims of the same or a higher priority.
type FitResult struct {
	Fits bool
	// UsesOwn means that the pod uses a part of what its claim holds, and Takes is by how much it lowers that at
	// Reserve.
	UsesOwn bool
	Takes   ledger.Resources
	// Lacks is the resource of which there is too little, and HeldBy a claim that keeps it from the pod. Both are empty
	// when the pod fits, and when it has UseOnly and too little of its own claim's is unused.
	Lacks  v1.ResourceName
	HeldBy *Claim
}

// Fit reports whether the holds of a node leave room for a pod:
//
//	request + unused amounts that it may not use <= allocatable - requested
//
// in each resource that is requested and held. What its own claim holds is not in its way; with UseOnly the request has
// to lie in what is unused of it. n may be nil, where nothing is held. For a pod without a claim Fit allocates nothing,
// unless extended resources are held.
func (n *NodeHolds) Fit(input *FitInput) FitResult {
	requester, request := input.Requester, input.Request
	if requester.IgnoreHolds {
		return FitResult{Fits: true}
	}
	if n == nil || len(n.Holds) == 0 { // nothing is in the way, and nothing there is the pod's
		return FitResult{Fits: requester.Use != UseOnly || requester.Claim == ""}
	}
	if requester.Use == UseLast && fitsBeside(request, &n.amounts, input.Allocatable, input.Requested) {
		return FitResult{Fits: true} // the usual case, also of pods without a claim: it does not matter what is used
	}
	s := shortage{own: n.Of(requester.Claim)}
	if s.own != nil {
		s.ownUnused = s.own.Unused(input.Owned)
	}
	if requester.Use == UseOnly && requester.Claim != "" && !s.own.includes(request, &s.ownUnused) {
		return FitResult{}
	}
	others, allocatable, requested := n.unusedOfOthers(input, s.own), input.Allocatable, input.Requested
	for _, r := range [...]struct {
		name                  v1.ResourceName
		request, others, room int64
	}{
		{v1.ResourcePods, 1, others.Pods, allocatable.Pods - requested.Pods},
		{v1.ResourceCPU, request.MilliCPU, others.MilliCPU, allocatable.MilliCPU - requested.MilliCPU},
		{v1.ResourceMemory, request.Memory, others.Memory, allocatable.Memory - requested.Memory},
		{v1.ResourceEphemeralStorage, request.EphemeralStorage, others.EphemeralStorage, allocatable.EphemeralStorage - requested.EphemeralStorage},
	} {
		if !s.checkResource(r.name, r.request, r.others, r.room) {
			return FitResult{Lacks: r.name, HeldBy: n.inTheWay(input, s.own, r.name)}
		}
	}
	for name, amount := range request.Scalar {
		if !s.checkResource(name, amount, others.Scalar[name], allocatable.Scalar[name]-requested.Scalar[name]) {
			return FitResult{Lacks: name, HeldBy: n.inTheWay(input, s.own, name)}
		}
	}
	result := FitResult{Fits: true}
	switch { // see the table at FitResult
	case s.own == nil:
	case requester.Use == UseOnly:
		result.UsesOwn = true
	case requester.Use == UseFirst:
		result.UsesOwn = s.ownUnused.Slots(&s.own.Claim.Slot) > 0
	case s.needsOwn:
		result.UsesOwn = true
		if !s.own.Claim.Inclusive() {
			result.Takes = s.own.slots(s.slotsNeeded)
		}
	}
	return result
}

// fitsBeside reports whether a request fits beside what is held, used or not, in each resource that both name.
func fitsBeside(request, held, allocatable, requested *ledger.Resources) bool {
	if lacksRoom(1, held.Pods, allocatable.Pods-requested.Pods) || // an amount may have no place for a pod
		lacksRoom(request.MilliCPU, held.MilliCPU, allocatable.MilliCPU-requested.MilliCPU) ||
		lacksRoom(request.Memory, held.Memory, allocatable.Memory-requested.Memory) ||
		lacksRoom(request.EphemeralStorage, held.EphemeralStorage, allocatable.EphemeralStorage-requested.EphemeralStorage) {
		return false
	}
	for name, amount := range request.Scalar {
		if lacksRoom(amount, held.Scalar[name], allocatable.Scalar[name]-requested.Scalar[name]) {
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
	// needsOwn means that the pod needs a part of own, and slotsNeeded is how many of its slots make up for what the pod
	// lacks.
	needsOwn    bool
	slotsNeeded int64
}

// checkResource takes one resource into account: a request of it beside what others hold and the room that pods have
// left. It reports false if the others keep the pod off. A resource that is not requested or not held is not checked.
func (s *shortage) checkResource(name v1.ResourceName, request, others, room int64) bool {
	if lacksRoom(request, others, room) {
		return false
	}
	unused := s.ownUnused.Amount(name)
	if unused <= 0 || !lacksRoom(request, others+unused, room) {
		return true
	}
	s.needsOwn = true
	slots := s.ownUnused.Pods
	if slot := s.own.slotOf(name); slot > 0 {
		slots = min(slots, ceil(request+others+unused-room, slot))
	}
	s.slotsNeeded = max(s.slotsNeeded, slots)
	return true
}

// inTheWay returns the first claim that the pod may not use and of which some of a resource is unused.
func (n *NodeHolds) inTheWay(input *FitInput, own *Hold, name v1.ResourceName) *Claim {
	for i := range n.Holds {
		if h := &n.Holds[i]; h != own && !input.mayTakeFrom(h.Claim) && h.UnusedOf(name, input.Owned) > 0 {
			return h.Claim
		}
	}
	return nil
}

// mayTakeFrom reports whether the pod may take the room of a claim that is not its own.
func (input *FitInput) mayTakeFrom(c *Claim) bool { return c.Priority < input.Requester.Priority }

// unusedOfOthers returns what is unused of the holds that the pod must respect.
func (n *NodeHolds) unusedOfOthers(input *FitInput, own *Hold) (sum ledger.Resources) {
	for i := range n.Holds {
		if h := &n.Holds[i]; h != own && !input.mayTakeFrom(h.Claim) {
			unused := h.Unused(input.Owned)
			sum.Add(&unused, 1)
		}
	}
	return sum
}
