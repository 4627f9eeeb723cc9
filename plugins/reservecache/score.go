package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

const scoreStateKey fwk.StateKey = "PreScore" + Name

// scores are those of the nodes on which the pod would use an amount of its own; all others have the highest score.
type scores map[string]int64

// Clone returns the scores themselves: nothing changes them.
func (s scores) Clone() fwk.StateData { return s }

// PreScore finds out how much of its claim's amounts the pod would leave on each node. It is Skip for a pod that has none, or needs none.
func (p *ReserveCache) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	d := read(state)
	if d == nil || d.owner == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	left := map[string]ledger.Resources{}
	var most ledger.Resources
	for _, info := range nodes {
		name := info.Node().Name
		part := d.choices.get(name)
		own := p.running.view.Node(name).Of(d.asker.Claim)
		if own == nil || !own.Claim.Amounts || part.IsZero() {
			continue
		}
		unused := own.Unused(podsOf(info.GetPods()).has)
		rest := unused.Clone()
		for _, t := range d.takenOn(name) {
			if t.Claim == d.asker.Claim {
				rest.Add(&t.Took, -1)
			}
		}
		rest.Add(&part, -1)
		rest = rest.Positive()
		rest.Pods = 0
		left[name] = rest
		most.Raise(&rest)
	}
	if len(left) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	out := scores{}
	for name, rest := range left {
		out[name] = tightness(&rest, &most)
	}
	state.Write(scoreStateKey, out)
	return nil
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

// Score prefers the nodes on which the pod leaves the least of the amounts that are held for it and for others of its claim. Elsewhere
// a smaller pod would take the only room for a larger one.
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
