package floor

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
)

// Pod is a pod that asks for room.
type Pod struct {
	// Claim is that of which the pod is an owner; empty for none.
	Claim    types.UID
	Priority int32
	Request  ledger.Resources
}

// At is a node on which a pod asks for room, and the pods that are there at that time.
type At struct {
	Node string
	// Generation is that of [Node] if the pods are the same; 0 if they may be others.
	Generation             int64
	Allocatable, Requested ledger.Resources
	// Owned returns what the owners of each claim among the pods ask for. It is called if the generation differs.
	Owned func() map[types.UID]ledger.Resources
}

// Verdict says whether a node has room for a pod.
type Verdict struct {
	Fits bool
	// HeldFor names the claim in the way of a pod; empty if the pod, an owner that has to run in slots, lacks its own.
	HeldFor string
}

// Fit reports whether a node has room for a pod:
//
//	request + slots that it may not use <= allocatable - requested
//
// in each resource that both name. It may use those of its own claim, and of claims with a lower priority than its own.
// Owners of a Required claim have to lie in what their claim has on the node. Slots that owners take up are not in the
// way of others twice: what these ask for is in requested.
func (f *Floor) Fit(pod *Pod, at *At) Verdict {
	n := f.nodes[at.Node]
	own := f.byUID[pod.Claim]
	if n == nil || len(n.holdings) == 0 {
		return Verdict{Fits: own == nil || !own.Required}
	}
	same := at.Generation != 0 && at.Generation == n.generation
	if same && pod.Priority <= n.lowest && (own == nil || n.holding(own) == nil) {
		if own != nil && own.Required {
			return Verdict{}
		}
		if name := lacks(&pod.Request, &n.held, at); name != "" {
			return Verdict{HeldFor: n.inTheWay(pod, name, nil)}
		}
		return Verdict{Fits: true}
	}
	var owned map[types.UID]ledger.Resources
	if !same && n.inclusive() {
		owned = at.Owned()
		if owned == nil {
			owned = map[types.UID]ledger.Resources{}
		}
	}
	if own != nil && own.Required && !own.includes(pod, n.holding(own), owned) {
		return Verdict{}
	}
	others := n.others(pod, owned)
	if name := lacks(&pod.Request, &others, at); name != "" {
		return Verdict{HeldFor: n.inTheWay(pod, name, owned)}
	}
	return Verdict{Fits: true}
}

// Kept returns what slots on a node keep from a pod: of an owner that has to run in slots, all room but those.
func (f *Floor) Kept(pod *Pod, at *At) ledger.Resources {
	n, own := f.nodes[at.Node], f.byUID[pod.Claim]
	if n == nil {
		return ledger.Resources{}
	}
	var owned map[types.UID]ledger.Resources
	if at.Generation == 0 || at.Generation != n.generation {
		if owned = at.Owned(); owned == nil {
			owned = map[types.UID]ledger.Resources{}
		}
	}
	kept := n.others(pod, owned)
	if own == nil || !own.Required {
		return kept
	}
	var unused ledger.Resources
	if h := n.holding(own); h != nil {
		unused = h.unusedBy(owned)
	}
	for name := range own.Slot.Named() {
		free := at.Allocatable.Amount(name) - at.Requested.Amount(name)
		kept.Put(name, max(kept.Amount(name), free-unused.Amount(name)))
	}
	return kept
}

// Own returns what the slots of a pod's own claim on a node leave for it.
func (f *Floor) Own(pod *Pod, at *At) ledger.Resources {
	n, own := f.nodes[at.Node], f.byUID[pod.Claim]
	if n == nil || own == nil {
		return ledger.Resources{}
	}
	h := n.holding(own)
	if h == nil {
		return ledger.Resources{}
	}
	owned := at.Owned()
	if owned == nil {
		owned = map[types.UID]ledger.Resources{}
	}
	return h.unusedBy(owned)
}

// Outranks reports whether a pod of that priority may take room that is held on a node.
func (f *Floor) Outranks(nodeName string, priority int32) bool {
	n := f.nodes[nodeName]
	return n != nil && len(n.holdings) > 0 && n.lowest < priority
}

// Empty reports whether no claim has slots or owners anywhere. Then Fit depends only on whether the pod's own claim
// is Required.
func (f *Floor) Empty() bool {
	for _, c := range f.order {
		if len(c.holdings) > 0 {
			return false
		}
	}
	return true
}

// EmptyOn is Empty for one node.
func (f *Floor) EmptyOn(node string) bool {
	n := f.nodes[node]
	return n == nil || len(n.holdings) == 0
}

// inclusive reports whether it matters which owners are on a node.
func (n *node) inclusive() bool {
	for _, h := range n.holdings {
		if h.claim.Inclusive {
			return true
		}
	}
	return false
}

// others is what is held on a node that a pod may not use. owned is what owners ask for; nil if they are those of the
// last Update.
func (n *node) others(pod *Pod, owned map[types.UID]ledger.Resources) (sum ledger.Resources) {
	for _, h := range n.holdings {
		if !h.claim.yieldsTo(pod) {
			unused := h.unusedBy(owned)
			sum.Add(&unused, 1)
		}
	}
	return sum
}

// yieldsTo reports whether a pod may use the claim's slots.
func (c *claimState) yieldsTo(pod *Pod) bool { return c.UID == pod.Claim || c.Priority < pod.Priority }

// unusedBy is what is held while the owners on the node ask for that.
func (h *holding) unusedBy(owned map[types.UID]ledger.Resources) ledger.Resources {
	if owned == nil || !h.claim.Inclusive {
		return h.unused
	}
	now := owned[h.claim.UID]
	return h.claim.unusedOf(h.amount(h.slots, 0), &now)
}

// includes reports whether a pod lies in what is unused of a holding, in the resources that slots name.
func (c *Claim) includes(pod *Pod, h *holding, owned map[types.UID]ledger.Resources) bool {
	if h == nil {
		return false
	}
	unused := h.unusedBy(owned)
	for name := range c.Slot.Named() {
		if pod.Request.Amount(name) > unused.Amount(name) {
			return false
		}
	}
	return true
}

// inTheWay names the oldest claim that a pod may not use and that holds some of a resource.
func (n *node) inTheWay(pod *Pod, resource v1.ResourceName, owned map[types.UID]ledger.Resources) string {
	var first *claimState
	for _, h := range n.holdings {
		unused := h.unusedBy(owned)
		if unused.Amount(resource) > 0 && !h.claim.yieldsTo(pod) && (first == nil || h.claim.Compare(&first.Claim) < 0) {
			first = h.claim
		}
	}
	if first == nil {
		return ""
	}
	return first.Name
}

// lacks returns a resource of which a request and what is held are more than what pods have left; empty for none. One
// that is not requested, or not held, does not count.
func lacks(request, held *ledger.Resources, at *At) v1.ResourceName {
	more := func(request, held, allocatable, requested int64) bool {
		return request > 0 && held > 0 && request+held > allocatable-requested
	}
	switch a, r := &at.Allocatable, &at.Requested; {
	case more(request.Pods, held.Pods, a.Pods, r.Pods):
		return v1.ResourcePods
	case more(request.MilliCPU, held.MilliCPU, a.MilliCPU, r.MilliCPU):
		return v1.ResourceCPU
	case more(request.Memory, held.Memory, a.Memory, r.Memory):
		return v1.ResourceMemory
	case more(request.EphemeralStorage, held.EphemeralStorage, a.EphemeralStorage, r.EphemeralStorage):
		return v1.ResourceEphemeralStorage
	}
	for name, amount := range request.Scalar {
		if more(amount, held.Scalar[name], at.Allocatable.Scalar[name], at.Requested.Scalar[name]) {
			return name
		}
	}
	return ""
}
