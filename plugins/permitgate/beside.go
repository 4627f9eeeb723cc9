package permitgate

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// A nomination keeps pods off a node, and its end is no event, so kube-scheduler would retry them only after minutes. So
// pods without a gang that found no node while others were nominated are remembered, and activated when nominations end.
// Gangs are woken by wakes.

// maxBeside bounds how many pods are remembered.
const maxBeside = 1000

// beside has the pods that found no node while others were nominated. Its methods may be called from several goroutines.
type beside struct {
	// freed is true if nominations have ended since the last take.
	freed atomic.Bool

	mu   sync.Mutex // guards pods
	pods map[types.UID]*v1.Pod
}

// refused remembers a pod.
func (b *beside) refused(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods == nil {
		b.pods = map[types.UID]*v1.Pod{}
	}
	if len(b.pods) < maxBeside {
		b.pods[pod.UID] = pod
	}
}

// forget drops a pod that is bound or gone.
func (b *beside) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pods, uid)
}

// free records that nominations have ended. It reports whether pods wait for that.
func (b *beside) free() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pods) > 0 {
		b.freed.Store(true)
	}
	return len(b.pods) > 0
}

// take returns the pods to activate, in the form of the handle's argument.
func (b *beside) take() map[string]*v1.Pod {
	if !b.freed.Swap(false) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	pods := make(map[string]*v1.Pod, len(b.pods))
	for _, pod := range b.pods {
		pods[podgroup.Key(pod).String()] = pod
	}
	clear(b.pods)
	return pods
}
