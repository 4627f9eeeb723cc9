package reservecache

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

const scoreStateKey fwk.StateKey = "PreScore" + Name

// scores are those of the nodes on which the pod would use an amount of its own, or take room that is held for others;
// all others have the highest score.
type scores map[string]int64

// Clone returns the scores themselves: nothing changes them.
func (s scores) Clone() fwk.StateData { return s }

// PreScore finds out how much of its claim's amounts the pod would leave on each node, and on which nodes it would take
// room that is held for others. It is Skip for a pod that does neither anywhere.
func (p *ReserveCache) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	d := cycleDataOf(state)
	if d == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	out := scores{}
	if d.reservation != nil {
		p.scoreAmounts(d, nodes, out)
	}
	p.scoreHeldRoom(d, nodes, out)
	if len(out) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(scoreStateKey, out)
	return nil
}

// scoreHeldRoom gives the lowest score to nodes on which a pod that outranks what is held fits in held room only. To
// others, such as the score for least allocated nodes, held room is free, and draws it there.
func (p *ReserveCache) scoreHeldRoom(d *cycleData, nodes []fwk.NodeInfo, out scores) {
	lowest := d.requester
	lowest.Priority = math.MinInt32
	for _, info := range nodes {
		name := info.Node().Name
		held := p.running.view.Node(name)
		if !held.YieldsTo(d.requester.Priority) {
			continue
		}
		allocatable, requested := resourcesOf(info.GetAllocatable()), requestedOf(info)
		input := d.fitInput(&allocatable, &requested, p.running.ownedOn(info))
		input.Requester = &lowest
		if !held.Fit(&input).Fits {
			out[name] = 0
		}
	}
}

// scoreAmounts gives the highest score to the node on which the pod would leave the least of its claim's amounts.
func (p *ReserveCache) scoreAmounts(d *cycleData, nodes []fwk.NodeInfo, out scores) {
	left := map[string]ledger.Resources{}
	var most ledger.Resources
	for _, info := range nodes {
		name := info.Node().Name
		held := p.running.view.Node(name)
		own := held.Of(d.requester.Claim)
		if own == nil || own.Claim.HasSlots() {
			continue
		}
		allocatable, requested, owned := resourcesOf(info.GetAllocatable()), requestedOf(info), p.running.ownedOn(info)
		input := d.fitInput(&allocatable, &requested, owned)
		if !held.Fit(&input).UsesOwn {
			continue
		}
		unused := own.Unused(owned)
		rest := unused.Minus(&d.request)
		rest = rest.Positive()
		rest.Pods = 0
		left[name] = rest
		most.SetMax(&rest)
	}
	for name, rest := range left {
		out[name] = tightness(&rest, &most)
	}
}

// tightness is the higher the less is left: of each resource as a part of the most that any node has left, in the mean.
func tightness(left, most *ledger.Resources) int64 {
	const fine = 1000 // parts of a score, so that little is lost to rounding
	parts, n := int64(0), int64(0)
	for name := range most.Named() {
		parts += int64(float64(fine*fwk.MaxScore) * float64(left.Amount(name)) / float64(most.Amount(name)))
		n++
	}
	if n == 0 {
		return fwk.MaxScore
	}
	return fwk.MaxScore - parts/(n*fine)
}

// Score prefers the nodes on which the pod leaves the least of the amounts that are held for it and for others of its
// claim: elsewhere a smaller pod would take the only room for a larger one. It prefers all nodes to those on which the
// pod would take what is held for others.
func (*ReserveCache) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(scoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	if score, uses := data.(scores)[info.Node().Name]; uses { //nolint:forcetypeassert // nobody else writes this key
		return score, nil
	}
	return fwk.MaxScore, nil
}

// ScoreExtensions returns nil: the scores are normalized.
func (*ReserveCache) ScoreExtensions() fwk.ScoreExtensions { return nil }
