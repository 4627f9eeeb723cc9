package holds

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Asker is a pod that asks for room.
type Asker struct {
	// Priority lets the pod take the room of claims with a lower priority, but not of its own claim: otherwise it would take
	// the room of its own slots in addition to them.
	Priority int32
	// Claim is the claim whose slots the pod may use; empty for none.
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
	Present                Present
	// Taken are parts of holds that are used without being recorded, by pods that Requested has.
	Taken []Taken
}

// Taken is a part of a claim's hold on a node that a pod uses.
type Taken struct {
	Claim types.UID
	Pod   types.UID
	// Took is what the pod uses.
	Took ledger.Resources
}

// Verdict is the answer to a Question.
type Verdict struct {
	Fits bool
	// Takes is what the pod uses of its claim, that of a number of slots if the claim has slots; nothing when it does not fit.
	Takes ledger.Resources
	// Lacks is the resource of which there is too little, and By the claim that is in the way. Both are empty when the pod
	// fits, and when it may run in slots only and there are too few.
	Lacks v1.ResourceName
	By    *Claim
}

// Uses reports whether the pod uses a part of what its claim holds.
func (v *Verdict) Uses() bool { return !v.Takes.IsZero() }

// Fit reports whether the holds of a node leave room for a pod, and what it uses of its claim: in Headroom mode (UseLast) the
// fewest slots with which it fits; in Guarantee mode (UseFirst) as many as cover its request, or all there are; with UseOnly as
// many as cover it, or it does not fit. Of amounts it uses what it lacks beside all that is held, and a place for a pod while there is one.
// It allocates nothing for a pod that uses nothing.
func (n *NodeHolds) Fit(q *Question) Verdict {
	who := q.Who
	if who.IgnoreHolds {
		return Verdict{Fits: true}
	}
	if n == nil || len(n.Holds) == 0 {
		return Verdict{Fits: who.Use != UseOnly || who.Claim == ""}
	}
	own := n.Of(who.Claim)
	all, mine := n.unusedToRespect(q, own)
	s := shortage{own: own, mine: mine}
	if own != nil && !own.Claim.Amounts {
		s.cover = int64(Cover(q.Request, &own.Claim.Slot))
	}
	if who.Use == UseOnly && who.Claim != "" && (own == nil || s.cover > mine.Pods) {
		return Verdict{}
	}
	lacks := s.checkResource(v1.ResourcePods, 1, all.Pods, mine.Pods, q.Allocatable.Pods-q.Requested.Pods)
	if lacks == "" {
		lacks = s.checkResource(v1.ResourceCPU, q.Request.MilliCPU, all.MilliCPU, mine.MilliCPU, q.Allocatable.MilliCPU-q.Requested.MilliCPU)
	}
	if lacks == "" {
		lacks = s.checkResource(v1.ResourceMemory, q.Request.Memory, all.Memory, mine.Memory, q.Allocatable.Memory-q.Requested.Memory)
	}
	if lacks == "" {
		lacks = s.checkResource(v1.ResourceEphemeralStorage, q.Request.EphemeralStorage, all.EphemeralStorage, mine.EphemeralStorage, q.Allocatable.EphemeralStorage-q.Requested.EphemeralStorage)
	}
	for name, amount := range q.Request.Scalar {
		if lacks != "" {
			break
		}
		allOf, mineOf := n.unusedToRespectOf(name, q, own, mine.Pods)
		lacks = s.checkResource(name, amount, allOf, mineOf, q.Allocatable.Scalar[name]-q.Requested.Scalar[name])
	}
	if lacks == "" && s.tooMany(who.Use) {
		lacks = s.short
	}
	if lacks != "" {
		return Verdict{Lacks: lacks, By: n.inTheWay(q, own, lacks)}
	}
	return Verdict{Fits: true, Takes: s.takes(who.Use)}
}

// shortage works out what a pod needs of its claim. It has no reference to the question, which would then not stay on the stack.
type shortage struct {
	own *Hold
	// mine is what is unused of the pod's own claim, and cover how many slots cover the request.
	mine  ledger.Resources
	cover int64
	// need is how many slots make room for the request in every resource checked so far, lacks what is lacking of an amount, and
	// short the first resource that lacks room without the claim.
	need  int64
	lacks ledger.Resources
	short v1.ResourceName
}

// checkResource takes one resource into account: request of it beside what is held and the room that pods have left. It returns the
// resource if what is held for the pod does not make room. A resource that is not requested or not held is not checked.
func (s *shortage) checkResource(name v1.ResourceName, request, all, mine, room int64) v1.ResourceName {
	over := request + all - room
	if request <= 0 || all <= 0 || over <= 0 {
		return ""
	}
	if s.short == "" {
		s.short = name
	}
	if mine <= 0 {
		return name
	}
	if s.own.Claim.Amounts {
		if over > mine {
			if mine < all {
				return name
			}
			over = mine // nothing else is held of it
		}
		s.lacks.Put(name, over)
		return ""
	}
	slot := s.own.Claim.Slot.Amount(name)
	if slot <= 0 {
		return name // the slots are about to change their size
	}
	need := ceil(over, slot)
	if need > s.mine.Pods {
		if mine < all {
			return name
		}
		need = s.mine.Pods // nothing else is held of it
	}
	s.need = max(s.need, need)
	return ""
}

// tooMany reports whether a pod that may run in slots only needs more of them than cover its request.
func (s *shortage) tooMany(use Use) bool { return s.own != nil && use == UseOnly && s.need > s.cover }

// takes chooses what the pod takes once all resources are checked.
func (s *shortage) takes(use Use) ledger.Resources {
	n := s.need
	switch {
	case s.own == nil:
		return ledger.Resources{}
	case s.own.Claim.Amounts:
		if s.short != "" {
			s.lacks.Pods = max(s.lacks.Pods, min(1, s.mine.Pods))
		}
		return s.lacks
	case use == UseFirst:
		n = max(n, min(s.cover, s.mine.Pods))
	case use == UseOnly:
		n = s.cover
	}
	if n == 0 {
		return ledger.Resources{}
	}
	return s.own.Claim.Slots(int(n))
}

// inTheWay returns the first claim that the pod may not use and of which some of a resource is unused, or else its own.
func (n *NodeHolds) inTheWay(q *Question, mine *Hold, name v1.ResourceName) *Claim {
	var own *Claim
	for i := range n.Holds {
		h := &n.Holds[i]
		if q.overrides(h.Claim) || h.UnusedOf(name, q.Present) <= 0 {
			continue
		}
		if h != mine {
			return h.Claim
		}
		own = h.Claim
	}
	return own
}

// overrides reports whether the pod may take the room of a claim.
func (q *Question) overrides(c *Claim) bool {
	return c.Priority < q.Who.Priority && c.UID != q.Who.Claim
}

// unusedToRespect returns the unused part of the holds that the pod must respect, and of its own claim among them, without scalar
// resources.
func (n *NodeHolds) unusedToRespect(q *Question, own *Hold) (all, mine ledger.Resources) {
	if n.consumers == 0 && len(q.Taken) == 0 && q.Who.Priority <= n.lowest {
		if own != nil {
			mine = withoutScalars(&own.Amount)
		}
		return withoutScalars(&n.unused), mine
	}
	for i := range n.Holds {
		h := &n.Holds[i]
		if q.overrides(h.Claim) {
			continue
		}
		unused := withoutScalars(&h.Amount)
		for j := range h.Consumers {
			if uses, there := h.uses(&h.Consumers[j], q.Present); there {
				subtract(&unused, &uses, 1)
			}
		}
		for j := range q.Taken {
			if q.Taken[j].Claim == h.Claim.UID {
				subtract(&unused, &q.Taken[j].Took, 1)
			}
		}
		if unused = unused.Positive(); h == own {
			unused = h.forOwner(unused)
			mine = unused
		}
		subtract(&all, &unused, -1)
	}
	return all, mine
}

// forOwner returns what an owner finds of an unused amount: whole slots. What others of the claim leave of theirs is in its way no more than
// free room.
func (h *Hold) forOwner(unused ledger.Resources) ledger.Resources {
	if h.Claim.Amounts {
		return unused
	}
	slots := unused.Pods
	unused.MilliCPU = min(unused.MilliCPU, slots*h.Claim.Slot.MilliCPU)
	unused.Memory = min(unused.Memory, slots*h.Claim.Slot.Memory)
	unused.EphemeralStorage = min(unused.EphemeralStorage, slots*h.Claim.Slot.EphemeralStorage)
	return unused
}

// unusedToRespectOf is unusedToRespect for a scalar resource. mySlots is how many slots of the pod's own claim are unused.
func (n *NodeHolds) unusedToRespectOf(name v1.ResourceName, q *Question, own *Hold, mySlots int64) (all, mine int64) {
	for i := range n.Holds {
		h := &n.Holds[i]
		if h.Amount.Scalar[name] == 0 || q.overrides(h.Claim) {
			continue
		}
		unused := h.UnusedOf(name, q.Present)
		for j := range q.Taken {
			if q.Taken[j].Claim == h.Claim.UID {
				unused -= q.Taken[j].Took.Scalar[name]
			}
		}
		if h == own && !h.Claim.Amounts {
			unused = min(unused, h.Claim.Slot.Scalar[name]*mySlots)
		}
		if unused <= 0 {
			continue
		}
		all += unused
		if h == own {
			mine = unused
		}
	}
	return all, mine
}

// withoutScalars returns an amount without its scalar resources.
func withoutScalars(r *ledger.Resources) ledger.Resources {
	return ledger.Resources{MilliCPU: r.MilliCPU, Memory: r.Memory, EphemeralStorage: r.EphemeralStorage, Pods: r.Pods}
}

// subtract takes times b from a, scalar resources aside.
func subtract(a, b *ledger.Resources, times int64) {
	a.MilliCPU -= times * b.MilliCPU
	a.Memory -= times * b.Memory
	a.EphemeralStorage -= times * b.EphemeralStorage
	a.Pods -= times * b.Pods
}
