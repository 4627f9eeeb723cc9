package reservecache

import (
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

const stateKey fwk.StateKey = Name

// cycleData is what PreFilter finds out for the cycle of one pod. Filter reads it from several goroutines.
type cycleData struct {
	pod    floor.Pod
	claims *serve.Claims
	// owner is what the pod's reservation gives it; nil when it belongs to none.
	owner *serve.Owner
	// inGroup means that the snapshot is changed under an unchanged generation: what is on a node has to be counted.
	inGroup bool
	// refused is set once this cycle's refusal is recorded; nil for a hypothetical pod, which does not wait for room.
	refused *atomic.Bool
}

// Clone is called for what-if searches, which add and remove pods. All of these are in the NodeInfos.
func (d *cycleData) Clone() fwk.StateData {
	c := *d
	return &c
}

// cycleDataOf returns the cycle's data, or nil when PreFilter found that no slots concern the pod.
func cycleDataOf(state fwk.CycleState) *cycleData {
	data, _ := state.Read(stateKey) // an error says that there is none
	d, _ := data.(*cycleData)
	return d
}

// floorPod returns a pod as the floor sees it, and what its reservation gives it; ignores is true if no slots keep it
// off.
func (r *running) floorPod(claims *serve.Claims, pod *v1.Pod) (p floor.Pod, owner *serve.Owner, ignores bool) {
	p.Priority = schedulingv1.PodPriority(pod)
	if serve.IgnoresSlots(pod) {
		return p, nil, true
	}
	p.Request = r.ledger.Requests(pod)
	if owner = claims.OwnerOf(pod); owner != nil {
		p.Claim = owner.Claim
	}
	return p, owner, false
}

// at returns a node of the cycle as the floor sees it.
func (r *running) at(claims *serve.Claims, inGroup bool, info fwk.NodeInfo) floor.At {
	at := nodeAt(inGroup, info)
	at.Owned = func() map[types.UID]ledger.Resources { return ownedOn(claims, r.ledger, info) }
	return at
}

// nodeAt is at without Owned, for Filter, which makes that function itself: one that is returned is allocated.
func nodeAt(inGroup bool, info fwk.NodeInfo) floor.At {
	at := floor.At{
		Node: info.Node().Name, Generation: info.GetGeneration(), Allocatable: resourcesOf(info.GetAllocatable()), Requested: requestedOf(info),
	}
	if inGroup {
		at.Generation = 0
	}
	return at
}
