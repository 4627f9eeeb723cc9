package permitgate

import (
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// maxBeside bounds how many pods are remembered.
const maxBeside = 1000

// nominations has the nodes that all pods are nominated to in the API, so that a proposal need not ask the framework about
// every node, and the pods that found no node beside nominations.
//
// A nomination keeps pods off a node, and its end is no event, so kube-scheduler would retry them only after minutes. So
// pods without a gang that found no node while others were nominated are remembered, and activated when nominations end.
// Gangs are woken by wakes.
//
// Its methods may be called from several goroutines.
type nominations struct {
	// members is how many nominated pods are members of gangs, and ended is true if nominations have ended since the last
	// take.
	members atomic.Int64
	ended   atomic.Bool

	mu     sync.Mutex // guards everything below
	of     map[types.UID]nomination
	beside map[types.UID]*v1.Pod
}

// nomination is the nominated node of a pod.
type nomination struct {
	node   string
	member bool // of a gang
}

func newNominations() *nominations {
	return &nominations{of: map[types.UID]nomination{}, beside: map[types.UID]*v1.Pod{}}
}

// set records the current state of a pod. It returns the node that the pod is no longer nominated to, or an empty string.
func (n *nominations) set(pod *v1.Pod) (left string) {
	to := nomination{}
	if pod.Spec.NodeName == "" && podgroup.Live(pod) {
		to.node = pod.Status.NominatedNodeName
		_, to.member = podgroup.Of(pod)
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
	return n.moveLocked(uid, nomination{})
}

func (n *nominations) moveLocked(uid types.UID, to nomination) (left string) {
	was := n.of[uid]
	if was.node == to.node {
		return ""
	}
	delete(n.of, uid)
	if was.member {
		n.members.Add(-1)
	}
	if to.node != "" {
		n.of[uid] = to
		if to.member {
			n.members.Add(1)
		}
	}
	return was.node
}

// nodes returns the nodes that pods are nominated to.
func (n *nominations) nodes() sets.Set[string] {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := sets.New[string]()
	for _, one := range n.of {
		nodes.Insert(one.node)
	}
	return nodes
}

// refused remembers a pod that found no node beside nominations.
func (n *nominations) refused(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.beside) < maxBeside {
		n.beside[pod.UID] = pod
	}
}

// end records that nominations have ended. It reports whether pods wait for that.
func (n *nominations) end() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.beside) > 0 {
		n.ended.Store(true)
	}
	return len(n.beside) > 0
}

// take returns the pods to activate, in the form of the handle's argument.
func (n *nominations) take() map[string]*v1.Pod {
	if !n.ended.Swap(false) {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	pods := make(map[string]*v1.Pod, len(n.beside))
	for _, pod := range n.beside {
		pods[podgroup.Key(pod).String()] = pod
	}
	clear(n.beside)
	return pods
}
