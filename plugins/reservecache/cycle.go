package reservecache

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

const stateKey fwk.StateKey = Name

// cycleData is what PreFilter finds out about holds for the cycle of one pod. Filter reads it from several
// goroutines; what changes is atomic or has a lock of its own.
type cycleData struct {
	requester holds.Requester
	request   ledger.Resources
	// reservation is what the pod's reservation gives it; nil when it belongs to none. version is that of the owners.
	reservation *serve.Owner
	version     any
	// betterNode is the search for a better node, made at most once for all copies of the data. inBetterNodeSearch is set in
	// the copy with which it runs the filters.
	betterNode         *betterNode
	inBetterNodeSearch bool
	// inGroup means that the pod is a member of a native pod group: its node was chosen with other members on the
	// nodes, of which the snapshot shows nothing when the pod is reserved.
	inGroup bool
	// parts are what the pod would take of its claim on each node, found by Filter for Reserve; nil for a pod without
	// one.
	parts *partsToTake
	// taken is what the pod has taken at Reserve, for Unreserve; nil for nothing.
	taken *atomic.Pointer[holds.Taken]
	// refusalRecorded is set once this cycle's refusal is recorded; nil for a hypothetical pod, which does not wait for
	// room.
	refusalRecorded *atomic.Bool
}

// Clone is called for what-if searches, which add and remove pods. All of these are in the NodeInfos.
func (d *cycleData) Clone() fwk.StateData {
	c := *d
	return &c
}

// cycleDataOf returns the cycle's data, or nil when PreFilter found that no hold concerns the pod.
func cycleDataOf(state fwk.CycleState) *cycleData {
	data, _ := state.Read(stateKey) // an error says that there is none
	d, _ := data.(*cycleData)
	return d
}

// fitInput returns the pod and a node, for holds.
func (d *cycleData) fitInput(allocatable, requested *ledger.Resources, owned holds.Owned) holds.FitInput {
	return holds.FitInput{Requester: &d.requester, Request: &d.request, Allocatable: allocatable, Requested: requested, Owned: owned}
}

// partsToTake are what a pod would take of what its claim holds, by node. Filter looks at a node twice if pods are
// nominated to it, with them and without: the pod takes what it needs in either case.
type partsToTake struct {
	mu    sync.Mutex // guards parts
	parts map[string]ledger.Resources
}

func (p *partsToTake) keepLarger(node string, part ledger.Resources) {
	if part.IsZero() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	most := part.Clone()
	earlier := p.parts[node]
	most.SetMax(&earlier)
	p.parts[node] = most
}

func (p *partsToTake) get(node string) ledger.Resources {
	if p == nil {
		return ledger.Resources{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parts[node]
}

// requesterOf returns a pod as holds see it. The owner is nil if the pod belongs to no reservation.
func (r *running) requesterOf(pod *v1.Pod) (holds.Requester, *serve.Owner) {
	requester := holds.Requester{Priority: schedulingv1.PodPriority(pod)}
	if serve.IgnoresHolds(pod) {
		requester.IgnoreHolds = true
		return requester, nil
	}
	owner := r.server.OwnerOf(pod)
	if owner != nil {
		requester.Claim, requester.Use = owner.Claim, owner.Use
	}
	return requester, owner
}
