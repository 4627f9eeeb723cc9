package reservecache

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
)

// PreFilterExtensions returns what adapts the cycle's data to pods that come and go in what-if searches.
func (p *ReserveCache) PreFilterExtensions() fwk.PreFilterExtensions { return p }

// AddPod takes in that a pod is nominated to a node. An owner that will use a slot there is counted as its user, or its
// request and its slot would both be kept from others. All other pods show in the NodeInfo, and so do consumers.
func (p *ReserveCache) AddPod(_ context.Context, state fwk.CycleState, _ *v1.Pod, added fwk.PodInfo, info fwk.NodeInfo) *fwk.Status {
	data, _ := state.Read(stateKey) // an error says that there is none
	d, ok := data.(*cycleData)
	pod := added.GetPod()
	if !ok || pod.Spec.NodeName != "" {
		return nil
	}
	name := info.Node().Name
	holds := p.holdsOn(d, name)
	if holds == nil {
		return nil
	}
	asker, _ := p.running.askerFor(pod)
	if len(asker.Claims) == 0 {
		return nil
	}
	request := p.running.ledger.Requests(pod)
	allocatable, requested := amounts(info.GetAllocatable()), requestedOf(info)
	requested = requested.Clone() // the map is the NodeInfo's
	requested.Add(&request, -1)
	pods := podsOf(info.GetPods())
	verdict := ledger.Fits(&request, &allocatable, &requested, holds, &asker, func(uid types.UID) bool { return uid != pod.UID && pods.has(uid) })
	// A slot that is for one pod counts as used while that pod is there.
	if verdict.Slot == nil || verdict.Slot.For != "" {
		return nil
	}
	used := &ledger.NodeHolds{Node: holds.Node, Holds: slices.Clone(holds.Holds)}
	for i := range used.Holds {
		if h := &used.Holds[i]; h.Claim.ID == verdict.Slot.Claim.ID && h.For == "" {
			h.Consumers = append(slices.Clone(h.Consumers), pod.UID)
		}
	}
	changed := *d
	changed.nominated = maps.Clone(d.nominated)
	if changed.nominated == nil {
		changed.nominated = map[string]*ledger.NodeHolds{}
	}
	changed.nominated[name] = used
	state.Write(stateKey, &changed)
	return nil
}

// RemovePod has nothing to do: the slot of a consumer that is not on the node is unused.
func (*ReserveCache) RemovePod(context.Context, fwk.CycleState, *v1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status {
	return nil
}
