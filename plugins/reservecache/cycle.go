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
	asker   holds.Asker
	request ledger.Resources
	// reservation is what the pod's reservation gives it; nil when it belongs to none. version is that of the owners.
	reservation *serve.Owner
	version     any
	// betterNode is shared by all copies of the data, and asked lazily.
	betterNode *betterNode
	// probing means that the data is betterNode's own: a node that is not of the kind that is looked for is refused.
	probing bool
	// inGroup means that the pod is a member of a native pod group: its node was chosen with other members on the nodes,
	// of which the snapshot shows nothing when the pod is reserved.
	inGroup bool
	// choices are what the pod would take of holds on each node; nil for a pod that owns none.
	choices *choices
	// taken is what the pod has taken at Reserve, for Unreserve; nil for nothing.
	taken *atomic.Pointer[holds.Taken]
	// refused is set once holds have kept the pod off a node; nil for a hypothetical pod, which does not wait for room.
	refused *atomic.Bool
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

// question asks for room for the pod on a node.
func (d *cycleData) question(allocatable, requested *ledger.Resources, owned holds.Owned) holds.Question {
	return holds.Question{Who: &d.asker, Request: &d.request, Allocatable: allocatable, Requested: requested, Owned: owned}
}

// choices are what a pod would take of holds on each node. Filter looks at a node twice if pods are nominated to it,
// with them and without: the pod takes what it needs in either case.
type choices struct {
	mu    sync.Mutex // guards parts
	parts map[string]ledger.Resources
}

func (c *choices) keepLarger(node string, part ledger.Resources) {
	if part.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	most := part.Clone()
	earlier := c.parts[node]
	most.Raise(&earlier)
	c.parts[node] = most
}

func (c *choices) get(node string) ledger.Resources {
	if c == nil {
		return ledger.Resources{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.parts[node]
}

// askerFor returns the claim that a pod may use, and how. The owner is nil if the pod belongs to no reservation.
func (r *running) askerFor(pod *v1.Pod) (holds.Asker, *serve.Owner) {
	asker := holds.Asker{Priority: schedulingv1.PodPriority(pod)}
	if serve.IgnoresHolds(pod) {
		asker.IgnoreHolds = true
		return asker, nil
	}
	owner := r.server.OwnerOf(pod)
	if owner != nil {
		asker.Claim, asker.Use = owner.Claim, owner.Use
	}
	return asker, owner
}
