package plugins

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate"
	"zonewise.dev/plugins/reservecache/ledger"
)

// gangHolds keeps the slots of gangs in ReserveCache's ledger.
type gangHolds struct {
	ledger *ledger.Ledger
	freed  func(ctx context.Context)
	placed func(state fwk.CycleState, pod *v1.Pod)
}

// holdsOf returns the account of holds for PermitGate, nil where ReserveCache is not enabled.
func (p *Pack) holdsOf() permitgate.Holds {
	l := p.reserveCache.Ledger()
	if l == nil {
		return nil
	}
	return &gangHolds{ledger: l, freed: p.reserveCache.HoldsFreed, placed: p.reserveCache.SlotsPlaced}
}

func claimID(gang types.UID) ledger.ClaimID { return ledger.ClaimID{Kind: ledger.Gang, UID: gang} }

// Place implements permitgate.Holds.
func (h *gangHolds) Place(c permitgate.Claim, slots []permitgate.HoldSlot) error {
	wanted := make([]ledger.Slot, 0, len(slots))
	seen := map[string]*ledger.Seen{}
	for _, s := range slots {
		slot := ledger.Slot{Node: s.Node, Requests: h.ledger.Requests(s.Pod), Count: 1, For: s.Pod.UID}
		if s.Info != nil {
			if seen[s.Node] == nil {
				seen[s.Node] = seenBy(s.Info, s.Without)
			}
			slot.Seen = seen[s.Node]
		}
		wanted = append(wanted, slot)
	}
	_, err := h.ledger.PlaceHolds(ledger.Claim{
		ID: claimID(c.Gang), Name: "PodGroup " + c.Name, Priority: c.Priority, Mode: ledger.Guarantee,
		Since: c.Since, Deadline: c.Deadline, Wanted: c.Wanted, Filling: c.Filling,
	}, wanted)
	return err
}

// Move implements permitgate.Holds.
func (h *gangHolds) Move(gang types.UID, moves []permitgate.HoldMove) error {
	changes := make([]ledger.Slot, 0, 2*len(moves))
	for _, m := range moves {
		requests := h.ledger.Requests(m.Pod)
		changes = append(changes,
			ledger.Slot{Node: m.From, Requests: requests, For: m.Pod.UID},
			ledger.Slot{Node: m.To, Requests: requests, For: m.Pod.UID, Count: 1})
	}
	_, err := h.ledger.ChangeHolds(claimID(gang), changes)
	return err
}

// ReleaseMember implements permitgate.Holds.
func (h *gangHolds) ReleaseMember(gang, member types.UID) []string {
	return h.ledger.ReleaseMember(claimID(gang), member)
}

// Release implements permitgate.Holds.
func (h *gangHolds) Release(gang types.UID) []string { return h.ledger.ReleaseHolds(claimID(gang)) }

// Placed implements permitgate.Holds.
func (h *gangHolds) Placed(state fwk.CycleState, pod *v1.Pod) { h.placed(state, pod) }

// Woken implements permitgate.Holds.
func (h *gangHolds) Woken(ctx context.Context) { h.freed(ctx) }

// View implements permitgate.Holds.
func (h *gangHolds) View() permitgate.HoldsView {
	v := &gangHoldsView{}
	h.ledger.UpdateHoldsView(&v.holds)
	if v.holds.Empty() {
		return nil
	}
	return v
}

// gangHoldsView implements permitgate.HoldsView.
type gangHoldsView struct{ holds ledger.HoldsView }

// Subtract implements permitgate.HoldsView.
func (v *gangHoldsView) Subtract(node string, gang types.UID, priority int32, present func(types.UID) bool, names []v1.ResourceName, free []int64) {
	held := v.holds.Node(node)
	if held == nil {
		return
	}
	for i := range held.Holds {
		hold := &held.Holds[i]
		if hold.Claim.ID == claimID(gang) || hold.Claim.Priority < priority {
			continue
		}
		unused := int64(hold.Unused(present))
		for j, name := range names {
			free[j] -= unused * hold.Requests.Amount(name)
		}
	}
}

// Keeps implements permitgate.HoldsView.
func (v *gangHoldsView) Keeps(node string, gang types.UID, priority int32, pod types.UID) bool {
	held := v.holds.Node(node)
	if held == nil {
		return false
	}
	for i := range held.Holds {
		hold := &held.Holds[i]
		if hold.Claim.ID == claimID(gang) || hold.Claim.Priority < priority {
			continue
		}
		if hold.For == pod || slices.Contains(hold.Consumers, pod) {
			return true
		}
	}
	return false
}

// seenBy is a node as a scheduling cycle sees it, in the ledger's terms, and as it is when some pods have left it.
func seenBy(info fwk.NodeInfo, without map[types.UID]bool) *ledger.Seen {
	requested := amounts(info.GetRequested())
	requested.Pods = int64(len(info.GetPods()))
	if len(without) > 0 {
		requested = requested.Clone()
		for _, p := range info.GetPods() {
			if without[p.GetPod().UID] {
				gone := amounts(p.CalculateResource().Resource)
				gone.Pods = 1
				requested.Add(&gone, -1)
			}
		}
	}
	allocatable := amounts(info.GetAllocatable())
	allocatable.Pods = int64(info.GetAllocatable().GetAllowedPodNumber())
	return &ledger.Seen{Allocatable: allocatable, Requested: requested, Present: func(uid types.UID) bool {
		if without[uid] {
			return false
		}
		for _, p := range info.GetPods() {
			if p.GetPod().UID == uid {
				return true
			}
		}
		return false
	}}
}

func amounts(r fwk.Resource) ledger.Resources {
	return ledger.Resources{
		MilliCPU: r.GetMilliCPU(), Memory: r.GetMemory(), EphemeralStorage: r.GetEphemeralStorage(),
		Scalar: r.GetScalarResources(),
	}
}
