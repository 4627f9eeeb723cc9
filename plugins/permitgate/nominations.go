package permitgate

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// nominations has the nodes that all pods are nominated to in the API, so that a proposal need not ask the framework about
// every node, and the pods that are to be activated because kube-scheduler would retry them only after minutes:
//   - A nomination keeps pods off a node, and its end is no event. So pods that are scheduled one by one and found no node while
//     others were nominated are remembered, and activated when nominations end.
//   - A pod that preempts is retried when its victim leaves a node, but not as long as the victim is not deleted. A member
//     that is sent back leaves its node first, and its deletion is no event then. So the pods without a gang that are
//     nominated are activated when a member is deleted that has no node.
//
// Gangs are woken by wakes.
//
// Its methods may be called from several goroutines.
type nominations struct {
	members atomic.Int64 // how many nominated pods are members of gangs

	mu     sync.Mutex            // guards everything below
	of     map[types.UID]*v1.Pod // as they were when they were nominated to their node
	beside map[types.UID]*v1.Pod
	// ended and victims are true if nominations have ended, or members without a node were deleted, since the last take.
	ended, victims bool
}

func newNominations() *nominations {
	return &nominations{of: map[types.UID]*v1.Pod{}, beside: map[types.UID]*v1.Pod{}}
}

// set records the current state of a pod. It returns the node that the pod is no longer nominated to, or an empty string.
func (n *nominations) set(pod *v1.Pod) (left string) {
	var to *v1.Pod
	if pod.Spec.NodeName == "" && podgroup.Live(pod) && pod.Status.NominatedNodeName != "" {
		to = pod
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if pod.Spec.NodeName != "" {
		delete(n.beside, pod.UID)
	}
	return n.moveLocked(pod.UID, to)
}

// delete drops a pod.
func (n *nominations) delete(uid types.UID) (left string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.beside, uid)
	return n.moveLocked(uid, nil)
}

func (n *nominations) moveLocked(uid types.UID, to *v1.Pod) (left string) {
	if was := n.of[uid]; was != nil {
		if left = was.Status.NominatedNodeName; to != nil && to.Status.NominatedNodeName == left {
			return ""
		}
		delete(n.of, uid)
		n.countMember(was, -1)
	}
	if to != nil {
		n.of[uid] = to
		n.countMember(to, 1)
	}
	return left
}

func (n *nominations) countMember(pod *v1.Pod, by int64) {
	if _, ok := podgroup.Of(pod); ok {
		n.members.Add(by)
	}
}

// nodes returns the nodes that pods are nominated to.
func (n *nominations) nodes() sets.Set[string] {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := sets.New[string]()
	for _, one := range n.of {
		nodes.Insert(one.Status.NominatedNodeName)
	}
	return nodes
}

// refused remembers a pod that found no node beside nominations.
func (n *nominations) refused(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.beside[pod.UID] = pod
}

// end records that nominations have ended. It reports whether pods wait for that.
func (n *nominations) end() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended = n.ended || len(n.beside) > 0
	return n.ended
}

// victimGone records that a member without a node was deleted.
func (n *nominations) victimGone() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.victims = true
}

// take returns the pods to activate, in the form of the handle's argument.
func (n *nominations) take() map[string]*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := map[string]*v1.Pod{}
	if n.victims {
		for _, pod := range n.of {
			if _, ok := podgroup.Of(pod); !ok {
				pods[podgroup.Key(pod).String()] = pod
			}
		}
	}
	if n.ended {
		for _, pod := range n.beside {
			pods[podgroup.Key(pod).String()] = pod
		}
		clear(n.beside)
	}
	n.ended, n.victims = false, false
	return pods
}
