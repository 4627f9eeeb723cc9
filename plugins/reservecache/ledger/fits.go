package ledger

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Use says when a pod takes a slot that it may use.
type Use int

// The uses of slots.
const (
	// UseLast means that the pod takes a slot only if it does not fit beside all that is held.
	UseLast Use = iota
	// UseFirst means that the pod takes a slot if there is one.
	UseFirst
	// UseOnly means that the pod runs in a slot or not at all.
	UseOnly
)

// Asker is a pod that asks for room on a node.
type Asker struct {
	UID types.UID
	// Priority lets the pod take the space of claims that have a lower one.
	Priority int32
	// Claims are those whose slots the pod may use, the preferred one first. A slot that is for one pod is
	// used by that pod only, and by it at once, whatever Use says.
	Claims []ClaimID
	Use    Use
	// IgnoreHolds is for pods that no hold keeps out: DaemonSets' and those that are critical to the
	// system.
	IgnoreHolds bool
}

// overrides reports whether the pod does not mind the claim. It always minds one that it may use, or it
// would take the room of its own slots beside them.
func (a *Asker) overrides(c *Claim) bool {
	return a.IgnoreHolds || c.Priority < a.Priority && !slices.Contains(a.Claims, c.ID)
}

// mayUse reports whether the pod may use a slot of the hold.
func (a *Asker) mayUse(h *Hold) bool {
	return (h.For == "" || h.For == a.UID) && slices.Contains(a.Claims, h.Claim.ID)
}

// Verdict is the answer to an Asker.
type Verdict struct {
	Fits bool
	// Slot is the hold of which the pod uses a slot; nil when it needs none or does not fit.
	Slot *Hold
	// Resource and By say what is missing and whose slots are in the way. Both are empty when the pod fits;
	// Resource is empty too when the pod may run in a slot only and there is none.
	Resource v1.ResourceName
	By       *Claim
}

// Fits tells whether the holds of a node leave room for a pod: whether
//
//	request + unused slots that the pod may not use <= allocatable - requested
//
// in each resource that both the pod and those slots name, the number of pods included. A pod that uses a
// slot does so of one of the claims that it may use: all other unused slots, of that claim too, are slots
// that it may not use. Slots of claims with a lower priority than the pod's do not count.
//
// present says which pods are on the node, as requested has it. It is asked about the consumers of slots:
// the slot of one who is absent, such as a victim of preemption, is unused. Whether the pod fits when no
// holds are in the way is not judged. holds may be nil. Fits allocates nothing.
func Fits(request, allocatable, requested *Resources, holds *NodeHolds, who *Asker, present func(types.UID) bool) Verdict {
	if holds == nil || len(holds.Holds) == 0 {
		if who.Use == UseOnly && !who.IgnoreHolds {
			return Verdict{}
		}
		return Verdict{Fits: true}
	}
	if slot := holds.slotFor(request, allocatable, requested, who, present, true); slot != nil {
		return Verdict{Fits: true, Slot: slot}
	}
	lacks := holds.lacking(request, allocatable, requested, who, present, nil)
	if lacks == "" && (who.Use == UseLast || who.IgnoreHolds) {
		return Verdict{Fits: true}
	}
	if slot := holds.slotFor(request, allocatable, requested, who, present, false); slot != nil {
		return Verdict{Fits: true, Slot: slot}
	}
	if lacks == "" {
		return Verdict{Fits: who.Use == UseFirst}
	}
	if who.Use == UseOnly && !holds.usable(who, present) {
		return Verdict{}
	}
	return Verdict{Resource: lacks, By: holds.inTheWay(lacks, who, present)}
}

// slotFor returns a hold of which the pod may use a slot and then fits, or nil. With own it looks at slots
// that are for this pod alone, else at all others, in the order of the pod's preference.
func (n *NodeHolds) slotFor(request, allocatable, requested *Resources, who *Asker, present func(types.UID) bool, own bool) *Hold {
	for _, id := range who.Claims {
		for i := range n.Holds {
			h := &n.Holds[i]
			if h.Claim.ID != id || (h.For != "") != own || !who.mayUse(h) || h.Unused(present) == 0 {
				continue
			}
			if n.lacking(request, allocatable, requested, who, present, h) == "" {
				return h
			}
		}
	}
	return nil
}

// usable reports whether there is an unused slot that the pod may use.
func (n *NodeHolds) usable(who *Asker, present func(types.UID) bool) bool {
	for i := range n.Holds {
		if h := &n.Holds[i]; who.mayUse(h) && h.Unused(present) > 0 {
			return true
		}
	}
	return false
}

// lacking returns the first resource of which there is not enough beside the unused slots, one of slot
// excepted, or nothing.
func (n *NodeHolds) lacking(request, allocatable, requested *Resources, who *Asker, present func(types.UID) bool, slot *Hold) v1.ResourceName {
	var held Resources
	for i := range n.Holds {
		h := &n.Holds[i]
		unused := n.inForce(h, who, present)
		if h == slot {
			unused = max(0, unused-1)
		}
		held.MilliCPU += unused * h.Requests.MilliCPU
		held.Memory += unused * h.Requests.Memory
		held.EphemeralStorage += unused * h.Requests.EphemeralStorage
		held.Pods += unused
	}
	switch {
	case held.Pods == 0:
		return ""
	case 1+held.Pods > allocatable.Pods-requested.Pods:
		return v1.ResourcePods
	case short(request.MilliCPU, held.MilliCPU, allocatable.MilliCPU-requested.MilliCPU):
		return v1.ResourceCPU
	case short(request.Memory, held.Memory, allocatable.Memory-requested.Memory):
		return v1.ResourceMemory
	case short(request.EphemeralStorage, held.EphemeralStorage, allocatable.EphemeralStorage-requested.EphemeralStorage):
		return v1.ResourceEphemeralStorage
	}
	for name, amount := range request.Scalar {
		var heldOf int64
		for i := range n.Holds {
			h := &n.Holds[i]
			size := h.Requests.Scalar[name]
			if size == 0 {
				continue
			}
			unused := n.inForce(h, who, present)
			if h == slot {
				unused = max(0, unused-1)
			}
			heldOf += unused * size
		}
		if short(amount, heldOf, allocatable.Scalar[name]-requested.Scalar[name]) {
			return name
		}
	}
	return ""
}

// short reports whether a request has too little room beside what is held. A resource that is not asked for
// or not held is no matter of holds.
func short(request, held, room int64) bool {
	return request > 0 && held > 0 && request+held > room
}

// inForce returns how many unused slots of a hold the pod has to mind.
func (n *NodeHolds) inForce(h *Hold, who *Asker, present func(types.UID) bool) int64 {
	if who.overrides(h.Claim) {
		return 0
	}
	return int64(h.Unused(present))
}

// inTheWay returns the first claim whose unused slots take of a resource and that the pod may not use, or
// else one that it may use.
func (n *NodeHolds) inTheWay(name v1.ResourceName, who *Asker, present func(types.UID) bool) *Claim {
	var usable *Claim
	for i := range n.Holds {
		h := &n.Holds[i]
		if h.Requests.amount(name) == 0 || n.inForce(h, who, present) == 0 {
			continue
		}
		if !who.mayUse(h) {
			return h.Claim
		}
		if usable == nil {
			usable = h.Claim
		}
	}
	return usable
}
