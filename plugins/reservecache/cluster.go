package reservecache

import (
	"context"
	"errors"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// resourcesOf translates the framework's resources into the ledger's.
func resourcesOf(r fwk.Resource) ledger.Resources {
	return ledger.Resources{
		MilliCPU:         r.GetMilliCPU(),
		Memory:           r.GetMemory(),
		EphemeralStorage: r.GetEphemeralStorage(),
		Pods:             int64(r.GetAllowedPodNumber()),
		Scalar:           r.GetScalarResources(),
	}
}

// requestedOf returns what is requested of a node, its pods included.
func requestedOf(info fwk.NodeInfo) ledger.Resources {
	requested := resourcesOf(info.GetRequested())
	requested.Pods = int64(len(info.GetPods()))
	return requested
}

// ownedOn returns what the pods of claims on a node of a cycle ask for.
func (r *running) ownedOn(info fwk.NodeInfo) holds.Owned {
	return r.ownedByAtLeast(info, math.MinInt32)
}

// ownedByAtLeast is ownedOn as if all pods of a lower priority were gone.
func (r *running) ownedByAtLeast(info fwk.NodeInfo, priority int32) holds.Owned {
	return func(claim types.UID) (sum ledger.Resources) {
		for _, pod := range info.GetPods() {
			if owner := r.server.OwnerOf(pod.GetPod()); owner != nil && owner.Claim == claim && schedulingv1.PodPriority(pod.GetPod()) >= priority {
				requests := r.ledger.Requests(pod.GetPod())
				sum.Add(&requests, 1)
			}
		}
		return sum
	}
}

const (
	// sweepInterval is how often a cycle compares all nodes with those that it knows, which takes a twentieth of a
	// cycle on 5,000 nodes.
	sweepInterval = 50 * time.Millisecond
	// repeatInterval is how long cycles look at a node again, at the least, that the ledger has seen change.
	repeatInterval = 5 * time.Millisecond
)

// recentNodes are the nodes that the ledger has seen change of late. Those of a cycle are the same but for events
// that the scheduler's own cache has heard of a moment before the ledger, or long after it. It belongs to the
// scheduling cycles.
type recentNodes struct {
	ledger *ledger.Ledger
	// swept is when all nodes were last compared.
	swept time.Time
	// last is the ledger's generation at the time marked, and since that at the time before, which was replaced then.
	marked      time.Time
	since, last uint64
}

// next returns the nodes that a cycle has to compare; false for all.
func (n *recentNodes) next(now time.Time) (names []string, some bool) {
	if now.Sub(n.marked) >= repeatInterval {
		n.marked, n.since, n.last = now, n.last, n.ledger.Generation()
	}
	if now.Sub(n.swept) < sweepInterval {
		return n.ledger.ChangedSince(n.since), true
	}
	n.swept = now
	return nil, false
}

// cycleView shows the nodes of a scheduling cycle to the planner.
type cycleView struct {
	nodes  []fwk.NodeInfo
	ledger *ledger.Ledger
	server *serve.Server
	// recent returns the nodes to compare; nil for all.
	recent func() (names []string, some bool)
}

// Len implements placement.View.
func (v cycleView) Len() int { return len(v.nodes) }

// Generation implements placement.View.
func (v cycleView) Generation(i int) int64 { return v.nodes[i].GetGeneration() }

// Recent implements placement.View.
func (v cycleView) Recent() (names []string, some bool) {
	if v.recent == nil {
		return nil, false
	}
	return v.recent()
}

// Outdated implements placement.View: nothing changes within a cycle.
func (v cycleView) Outdated(int) bool { return false }

// Node implements placement.View.
func (v cycleView) Node(i int) *v1.Node { return v.nodes[i].Node() }

// Resources implements placement.View.
func (v cycleView) Resources(i int) (allocatable, requested ledger.Resources) {
	return resourcesOf(v.nodes[i].GetAllocatable()), requestedOf(v.nodes[i])
}

// Owned implements placement.View.
func (v cycleView) Owned(i int) map[types.UID]ledger.Resources {
	if !v.server.Any() {
		return nil
	}
	var owned map[types.UID]ledger.Resources
	for _, pod := range v.nodes[i].GetPods() {
		if owner := v.server.OwnerOf(pod.GetPod()); owner != nil {
			requests := v.ledger.Requests(pod.GetPod())
			owned = ledger.AddTo(owned, owner.Claim, &requests)
		}
	}
	return owned
}

// nominatedOn returns what the pods ask for that are nominated to a node and not on it yet. The queue has no more
// than the name of the pod that is being scheduled, which may be the very one.
func nominatedOn(l *ledger.Ledger, pods corelisters.PodLister, nominator fwk.PodNominator, node string) ledger.Resources {
	var sum ledger.Resources
	for _, info := range nominator.NominatedPodsForNode(node) {
		name := info.GetPod()
		if _, known := l.GetPod(name.UID); known {
			continue // it waits to be bound, and is counted
		}
		pod, err := pods.Pods(name.Namespace).Get(name.Name)
		if err != nil || pod.UID != name.UID {
			continue // it is gone, and so will be its nomination
		}
		requests := l.Requests(pod)
		sum.Add(&requests, 1)
	}
	return sum
}

// ledgerLags returns a function that reports whether the ledger has a bound pod on a node which the pod informer's
// store has no longer there: the event is on its way.
func ledgerLags(l *ledger.Ledger, factory informers.SharedInformerFactory) func(string) bool {
	pods := factory.Core().V1().Pods().Lister()
	return func(node string) bool {
		for _, p := range l.PodsOn(node) {
			if p.State != ledger.Added {
				continue
			}
			if stored, err := pods.Pods(p.Pod.Namespace).Get(p.Pod.Name); err != nil || stored.UID != p.Pod.UID || stored.Spec.NodeName != node {
				return true
			}
		}
		return false
	}
}

// nowhere is the source of a scheduler without an API server: it has no reservations.
type nowhere struct{}

var (
	_ crd.Source = nowhere{}
	_ crd.Kind   = nowhere{}
)

// Watch implements crd.Source.
func (nowhere) Watch(context.Context, client.Object, toolscache.ResourceEventHandler, func(bool)) (crd.Kind, error) {
	return nowhere{}, nil
}

// PatchStatus implements crd.Source.
func (nowhere) PatchStatus(context.Context, client.Object, client.Object) error {
	return errors.New("there is no API server")
}

// Read implements crd.Source.
func (nowhere) Read(context.Context, client.Object) error {
	return errors.New("there is no API server")
}

// Available implements crd.Kind.
func (nowhere) Available() bool { return false }

// HasSynced implements crd.Kind.
func (nowhere) HasSynced() bool { return false }

// Settled implements crd.Kind.
func (nowhere) Settled() bool { return true }
