package reservecache

import (
	"context"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
)

const scoreStateKey fwk.StateKey = "PreScore" + Name

// takenNodes are those on which the pod would take room that is held for others.
type takenNodes sets.Set[string]

// Clone returns the nodes themselves: nothing changes them.
func (t takenNodes) Clone() fwk.StateData { return t }

// PreScore finds the nodes on which a pod that outranks slots fits in their room only. To others, such as the score for
// least allocated nodes, that room is free, and draws it there. It is Skip for a pod of which there are none.
func (p *ReserveCache) PreScore(_ context.Context, state fwk.CycleState, _ *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	d, r := cycleDataOf(state), p.running
	if d == nil {
		return fwk.NewStatus(fwk.Skip)
	}
	lowest, taken := d.pod, sets.New[string]()
	lowest.Priority = math.MinInt32
	for _, info := range nodes {
		if !r.floor.floor.Outranks(info.Node().Name, d.pod.Priority) {
			continue
		}
		at := r.at(d.claims, d.inGroup, info)
		if !r.floor.floor.Fit(&lowest, &at).Fits {
			taken.Insert(info.Node().Name)
		}
	}
	if len(taken) == 0 {
		return fwk.NewStatus(fwk.Skip)
	}
	state.Write(scoreStateKey, takenNodes(taken))
	return nil
}

// Score prefers all nodes to those on which the pod would take what is held for others.
func (*ReserveCache) Score(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) (int64, *fwk.Status) {
	data, err := state.Read(scoreStateKey)
	if err != nil {
		return 0, fwk.AsStatus(err)
	}
	if taken, ok := data.(takenNodes); ok && sets.Set[string](taken).Has(info.Node().Name) {
		return 0, nil
	}
	return fwk.MaxScore, nil
}

// ScoreExtensions returns nil: the scores are normalized.
func (*ReserveCache) ScoreExtensions() fwk.ScoreExtensions { return nil }
