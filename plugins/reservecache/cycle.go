package reservecache

import (
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/reservations"
)

// systemCriticalPriority is the lowest priority of the pods that a cluster needs to work: that of the class
// system-cluster-critical. Users can not give themselves one as high.
const systemCriticalPriority int32 = 2_000_000_000

const stateKey fwk.StateKey = Name

// cycleData is what PreFilter finds out about holds for the cycle of one pod. Filter reads it from several
// goroutines; what changes is atomic or behind a sync.Once.
type cycleData struct {
	asker   ledger.Asker
	request ledger.Resources
	// owner is what the pod's reservation gives it; nil when it belongs to none.
	owner *reservations.Owner
	// elsewhere is shared by all copies of the data, and asked lazily.
	elsewhere *elsewhere
	// probing means that the data is elsewhere's own: a node that is not of the kind that is looked for is refused.
	probing bool
	// nominated replaces what is held on nodes to which owners are nominated. It belongs to a copy of the data.
	nominated map[string]*ledger.NodeHolds
	// refused is set once holds have kept the pod off a node.
	refused *atomic.Bool
	// refusal is what is then noted, made beforehand so that Filter need not.
	refusal *refusal
}

// Clone is called for what-if searches, which add and remove pods. Only nominated is ever changed after PreFilter, and
// never in place.
func (d *cycleData) Clone() fwk.StateData {
	c := *d
	return &c
}

// elsewhere answers, at most once in a cycle, whether the pod finds a node of the better kind anywhere: in Headroom mode
// one where it needs no slot, in Guarantee mode one where it has a slot.
type elsewhere struct {
	once  sync.Once
	found bool
	// state and nodes are those of PreFilter.
	state fwk.CycleState
	nodes []fwk.NodeInfo
}

// ignoresHolds tells whether holds do not keep the pod off: pods of DaemonSets belong to their node, and what is critical
// to the system comes before any promise.
func ignoresHolds(pod *v1.Pod) bool {
	if schedulingv1.PodPriority(pod) >= systemCriticalPriority {
		return true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// askerFor tells by which claims a pod may use slots, and how. The owner is nil when it belongs to no reservation.
func (r *running) askerFor(pod *v1.Pod) (ledger.Asker, *reservations.Owner) {
	asker := ledger.Asker{UID: pod.UID, Priority: schedulingv1.PodPriority(pod)}
	if ignoresHolds(pod) {
		asker.IgnoreHolds = true
		return asker, nil
	}
	if gang, ok := r.ledger.OwnSlot(pod.UID); ok {
		asker.Claims = append(asker.Claims, gang)
	}
	owner := r.reservations.OwnerOf(pod)
	if owner != nil {
		asker.Claims = append(asker.Claims, owner.Claim)
		asker.Use = owner.Use
	}
	return asker, owner
}

// holdsOn returns what is held on a node as the cycle sees it, or nil.
func (p *ReserveCache) holdsOn(d *cycleData, name string) *ledger.NodeHolds {
	if holds, ok := d.nominated[name]; ok {
		return holds
	}
	return p.running.view.Node(name)
}

// podsOf are the pods of a node in a cycle.
type podsOf []fwk.PodInfo

// has tells whether a pod is on the node.
func (p podsOf) has(uid types.UID) bool {
	return slices.ContainsFunc(p, func(info fwk.PodInfo) bool { return info.GetPod().UID == uid })
}

// hasAtLeast tells whether a pod of at least that priority is on the node, as if all others were gone.
func (p podsOf) hasAtLeast(uid types.UID, priority int32) bool {
	return slices.ContainsFunc(p, func(info fwk.PodInfo) bool {
		return info.GetPod().UID == uid && schedulingv1.PodPriority(info.GetPod()) >= priority
	})
}

// requestedOf returns what is requested of a node, its pods included.
func requestedOf(info fwk.NodeInfo) ledger.Resources {
	requested := amounts(info.GetRequested())
	requested.Pods = int64(len(info.GetPods()))
	return requested
}

// cycleView shows the nodes of a scheduling cycle to those who place slots.
type cycleView []fwk.NodeInfo

// Len implements placement.View.
func (v cycleView) Len() int { return len(v) }

// Generation implements placement.View.
func (v cycleView) Generation(i int) int64 { return v[i].GetGeneration() }

// Node implements placement.View.
func (v cycleView) Node(i int) *v1.Node { return v[i].Node() }

// Resources implements placement.View.
func (v cycleView) Resources(i int) (allocatable, requested ledger.Resources) {
	return amounts(v[i].GetAllocatable()), requestedOf(v[i])
}

// Present implements placement.View.
func (v cycleView) Present(i int, uid types.UID) bool { return podsOf(v[i].GetPods()).has(uid) }
