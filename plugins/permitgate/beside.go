package permitgate

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// A nomination keeps pods off a node, and no event tells them when it ends: kube-scheduler would try them again after minutes. So
// pods without a gang that found no node beside nominations are remembered, and activated when some have ended. Gangs
// have their own way (see wakes).

// maxBeside bounds how many pods are remembered.
const maxBeside = 1000

// beside is the pods that found no node while others were nominated. Its methods may be called from several goroutines.
type beside struct {
	// freed is true when nominations have ended since the pods were taken last.
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

// free says that nominations have ended. It reports whether pods wait for that.
func (b *beside) free() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pods) > 0 {
		b.freed.Store(true)
	}
	return len(b.pods) > 0
}

// take returns the pods to be activated, in the form that the handle takes.
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
