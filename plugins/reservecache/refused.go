package reservecache

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// refusedPods are the pods that slots have kept off some node, until they are reserved or gone. Freed room wakes them
// by queueing hints; what changes without an event of the framework, which is what is held, wakes them by Activate.
type refusedPods struct {
	handle activator
	// podBackoff returns the initial and the longest backoff of pods in the scheduling queue. Activate would end a
	// backoff.
	podBackoff func() (initial, longest time.Duration)

	mu   sync.Mutex // guards pods
	pods map[types.UID]*refusedPod
}

// activator is the part of the framework's handle that wakes pods.
type activator interface {
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
}

type refusedPod struct {
	object *v1.Pod
	asked  floor.Pod
	// attempts counts the refusals, and tried is when the last was.
	attempts int
	tried    time.Time
	// waits is false while the pod is in its cycle, and wakes is set when it is to be tried again.
	waits, wakes bool
}

func newRefusedPods(handle activator, podBackoff func() (initial, longest time.Duration)) *refusedPods {
	return &refusedPods{handle: handle, podBackoff: podBackoff, pods: map[types.UID]*refusedPod{}}
}

// beginAttempt notes that a pod is in its cycle: Activate would send it to its backoff.
func (r *refusedPods) beginAttempt(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.pods[uid]; p != nil {
		p.waits, p.wakes = false, false
	}
}

// record notes that slots have kept a pod off a node in its cycle. It reports whether no pod waited before.
func (r *refusedPods) record(pod *v1.Pod, asked *floor.Pod, now time.Time) (first bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = len(r.pods) == 0
	p := r.pods[pod.UID]
	if p == nil {
		p = &refusedPod{}
		r.pods[pod.UID] = p
	}
	p.object, p.asked, p.tried, p.waits = pod, *asked, now, true
	p.attempts++
	return first
}

// forget drops a pod that has a node, or is gone.
func (r *refusedPods) forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
}

// Empty implements serve.Waker.
func (r *refusedPods) Empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.pods) == 0
}

// shape is what distinguishes pods to a node's room.
type shape struct {
	claim                        types.UID
	priority                     int32
	milliCPU, memory, ephemerals int64
}

// Activate implements serve.Waker.
func (r *refusedPods) Activate(logger klog.Logger, pods map[string]*v1.Pod) {
	logger.V(4).Info("Activating pods that may now find room", "pods", len(pods))
	r.handle.Activate(logger, pods)
}

// Choose implements serve.Waker. None is chosen before its backoff has ended.
func (r *refusedPods) Choose(f *floor.Floor, changed []floor.At, claims *serve.Claims, all bool, now time.Time) serve.Woken {
	r.mu.Lock()
	defer r.mu.Unlock()
	initial, longest := r.podBackoff()
	woken, fits := serve.Woken{Pods: map[string]*v1.Pod{}}, map[shape]bool{}
	for _, p := range r.pods {
		if !p.waits {
			continue
		}
		claim := types.UID("")
		if owner := claims.OwnerOf(p.object); owner != nil {
			claim = owner.Claim
		}
		if claim != p.asked.Claim || all && claim != "" {
			p.asked.Claim, p.wakes = claim, true
		}
		p.wakes = p.wakes || fitsAnywhere(f, p, changed, fits)
		if !p.wakes {
			continue
		}
		if due := p.tried.Add(min(longest, initial<<min(p.attempts-1, 10))); due.After(now) {
			if woken.Next.IsZero() || due.Before(woken.Next) {
				woken.Next = due
			}
			continue
		}
		p.wakes = false
		woken.Pods[klog.KObj(p.object).String()] = p.object
	}
	return woken
}

// hasRoom reports whether a node has room for a pod beside its pods and the slots that the pod may not use.
func hasRoom(f *floor.Floor, asked *floor.Pod, at *floor.At) bool {
	return !ledger.Lacks(&asked.Request, &at.Allocatable, &at.Requested) && f.Fit(asked, at).Fits
}

// fitsAnywhere reports whether one of the nodes on which something else is held than before has room for a pod. fits
// has the answers for pods of the same shape.
func fitsAnywhere(f *floor.Floor, p *refusedPod, nodes []floor.At, fits map[shape]bool) bool {
	asked := &p.asked
	key := shape{asked.Claim, asked.Priority, asked.Request.MilliCPU, asked.Request.Memory, asked.Request.EphemeralStorage}
	alike := len(asked.Request.Scalar) == 0
	if found, known := fits[key]; known && alike {
		return found
	}
	found := false
	for i := range nodes {
		if found = hasRoom(f, asked, &nodes[i]); found {
			break
		}
	}
	if alike {
		fits[key] = found
	}
	return found
}
