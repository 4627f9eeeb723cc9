package reservecache

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
)

// undone remembers what pods used that were unreserved: the API server may have bound such a pod although the bind call failed. It
// has none but pods of the informer's store, whose end is yet to be shown.
type undone struct {
	pods corelisters.PodLister

	// mu guards used, and is held while what a pod uses and what the ledger has of it change together. It is taken before the locks
	// of holds and ledger.
	mu   sync.Mutex
	used map[types.UID]holds.Consumption
}

func newUndone(pods corelisters.PodLister) *undone {
	return &undone{pods: pods, used: map[types.UID]holds.Consumption{}}
}

// drop forgets what a pod used.
func (u *undone) drop(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.used, uid)
}

// leave ends the use of holds on a node by a pod that is not there, and reports whether it used any.
func (r *running) leave(pod *v1.Pod, nodeName string) bool {
	r.undone.mu.Lock()
	defer r.undone.mu.Unlock()
	at, known := r.ledger.GetPod(pod.UID)
	if known && at.Node == nodeName {
		return false
	}
	used, _ := r.holds.ConsumerOf(pod.UID)
	left := r.holds.Leave(pod.UID, nodeName)
	if is, err := r.undone.pods.Pods(pod.Namespace).Get(pod.Name); left && !known && err == nil && is.UID == pod.UID {
		r.undone.used[pod.UID] = used
	}
	return left
}

// gone ends the use of holds by a pod that is gone.
func (r *running) gone(uid types.UID) {
	r.undone.mu.Lock()
	defer r.undone.mu.Unlock()
	r.holds.Leave(uid, "")
	delete(r.undone.used, uid)
}

// resumeLocked has a pod use again what it used before it was unreserved, if it is bound to that node after all and as much is unused.
func (r *running) resumeLocked(pod *v1.Pod) {
	used, was := r.undone.used[pod.UID]
	if !was || pod.Spec.NodeName == "" {
		return
	}
	delete(r.undone.used, pod.UID)
	if used.Node == pod.Spec.NodeName && !ledger.Terminal(pod) {
		// Others may have taken it meanwhile: the pod is then an ordinary one.
		_ = r.holds.Take(pod.UID, used.Node, used.Claim, used.Took, nil)
	}
}
