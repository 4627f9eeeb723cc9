package permitgate

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/preempt"
)

// nominations has the pods that are nominated to nodes in the API, so that a proposal need not ask the framework about
// every node. Its methods may be called from several goroutines.
type nominations struct {
	mu   sync.Mutex // guards pods
	pods map[types.UID]*v1.Pod
}

func newNominations() *nominations { return &nominations{pods: map[types.UID]*v1.Pod{}} }

// set records the current state of a pod. It reports whether the pod has left the room that it was nominated to.
func (n *nominations) set(pod *v1.Pod) (left bool) {
	node := pod.Spec.NodeName
	if node == "" && pods.Live(pod) {
		node = pod.Status.NominatedNodeName
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.pods[pod.UID]
	delete(n.pods, pod.UID)
	if node != "" && pod.Spec.NodeName == "" {
		n.pods[pod.UID] = pod
	}
	return known != nil && known.Status.NominatedNodeName != node
}

// delete drops a pod.
func (n *nominations) delete(uid types.UID) (left bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, left = n.pods[uid]
	delete(n.pods, uid)
	return left
}

// nodes returns the nodes that pods are nominated to.
func (n *nominations) nodes() sets.Set[string] {
	n.mu.Lock()
	defer n.mu.Unlock()
	nodes := sets.New[string]()
	for _, pod := range n.pods {
		nodes.Insert(pod.Status.NominatedNodeName)
	}
	return nodes
}

// all returns the nominated pods, in the form of the handle's argument.
func (n *nominations) all() map[string]*v1.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := map[string]*v1.Pod{}
	for _, pod := range n.pods {
		all[podgroup.Key(pod).String()] = pod
	}
	return all
}

// nomination is a pod and the node that it is to be nominated to.
type nomination struct {
	pod  *v1.Pod
	node string
}

// nominate has the framework keep nodes for pods, until their next cycle or a change of their nominations in the API.
// It is called without locks.
func nominate(logger klog.Logger, nominator fwk.PodNominator, nominations []nomination) {
	for _, n := range nominations {
		nominator.AddNominatedPod(logger, preempt.NewPodInfo(n.pod), &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: n.node})
	}
}
