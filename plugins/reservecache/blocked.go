package reservecache

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// blockedPods are the pods that holds kept off a node when they were last tried. Filter adds to them without a lock.
type blockedPods struct {
	recent atomic.Pointer[refusal] // a stack

	mu   sync.Mutex // guards pods
	pods map[types.UID]*v1.Pod
}

// refusal is a pod on the stack.
type refusal struct {
	pod  *v1.Pod
	next *refusal
}

// add notes that holds kept a pod off.
func (b *blockedPods) add(r *refusal) {
	for {
		r.next = b.recent.Load()
		if b.recent.CompareAndSwap(r.next, r) {
			return
		}
	}
}

// settleLocked moves what is on the stack to the map.
func (b *blockedPods) settleLocked() {
	for r := b.recent.Swap(nil); r != nil; r = r.next {
		if b.pods == nil {
			b.pods = map[types.UID]*v1.Pod{}
		}
		b.pods[r.pod.UID] = r.pod
	}
}

// forget drops a pod that is tried again, is gone, or has a node.
func (b *blockedPods) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settleLocked()
	delete(b.pods, uid)
}

// take returns the pods for which which returns true, by namespace and name, and forgets them.
func (b *blockedPods) take(which func(*v1.Pod) bool) map[string]*v1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settleLocked()
	taken := map[string]*v1.Pod{}
	for uid, pod := range b.pods {
		if which(pod) {
			taken[pod.Namespace+"/"+pod.Name] = pod
			delete(b.pods, uid)
		}
	}
	return taken
}
