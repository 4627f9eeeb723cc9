package reservations

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// nominations are the pods that were promised a node, for which others were evicted, and that are not on it yet. Slots
// are placed beside them.
type nominations struct {
	mu   sync.Mutex // guards pods
	pods map[types.UID]*v1.Pod
}

// see takes a pod as the API server shows it.
func (n *nominations) see(pod *v1.Pod) {
	nominated := pod.Status.NominatedNodeName != "" && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !nominated:
		delete(n.pods, pod.UID)
	case n.pods == nil:
		n.pods = map[types.UID]*v1.Pod{pod.UID: pod}
	default:
		n.pods[pod.UID] = pod
	}
}

func (n *nominations) forget(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, uid)
}

// onNodes sums up what the pods will take. One that the ledger has already, since it waits to be bound, is not counted
// twice.
func (n *nominations) onNodes(l *ledger.Ledger) placement.Nominated {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pods) == 0 {
		return nil
	}
	sums := placement.Nominated{}
	for uid, pod := range n.pods {
		if _, known := l.GetPod(uid); known {
			continue
		}
		sum, requests := sums[pod.Status.NominatedNodeName], l.Requests(pod)
		sum.Add(&requests, 1)
		sums[pod.Status.NominatedNodeName] = sum
	}
	return sums
}

// PodSeen takes in a pod as the API server shows it, on a node or not.
func (s *Reservations) PodSeen(pod *v1.Pod) { s.nominated.see(pod) }

// PodGone takes in that a pod is gone.
func (s *Reservations) PodGone(uid types.UID) { s.nominated.forget(uid) }
