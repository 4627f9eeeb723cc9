package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/proposal"
)

// probeName is the UID of probes; no other object has it.
const probeName = "zonewise.dev/probe"

// countedResources knows which extended resources the profile's NodeResourcesFit counts: an extender may count some
// instead (ignoredResources). It asks the filters about a hypothetical pod and an empty node, so the args of other
// plugins need not be known. It is used in scheduling cycles only.
type countedResources struct {
	runner *filterRunner
	known  map[v1.ResourceName]bool // by resource that the filters were asked about
}

func newCountedResources(r *filterRunner) *countedResources {
	return &countedResources{runner: r, known: map[v1.ResourceName]bool{}}
}

// counts reports whether the filters refuse a pod that asks for more of a resource than a node has left. A resource
// that a node does not list may come from a device class (DRAExtendedResource). Unknown resources count as possible.
func (c *countedResources) counts(name v1.ResourceName, listed bool) bool {
	return c.known[name] && (listed || !c.hasDeviceClass(name))
}

func (c *countedResources) hasDeviceClass(name v1.ResourceName) bool {
	manager := c.runner.handle.SharedDRAManager()
	return manager != nil && manager.DeviceClassResolver().GetDeviceClass(name) != nil
}

// learn asks about the extended resources that pods request, unless they are known already.
func (c *countedResources) learn(ctx context.Context, state fwk.CycleState, classes []proposal.Class, nodes []fwk.NodeInfo) {
	if c.runner.run == nil || len(nodes) == 0 {
		return
	}
	for i := range classes {
		for _, a := range proposal.Requests(classes[i].Pod) {
			switch a.Name {
			case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
				continue
			}
			if _, known := c.known[a.Name]; !known {
				c.learnOne(ctx, state, classes[i].Pod, a.Name, nodes)
			}
		}
	}
}

// learnOne asks whether a request above the allocatable of a resource is refused.
func (c *countedResources) learnOne(ctx context.Context, state fwk.CycleState, like *v1.Pod, name v1.ResourceName, nodes []fwk.NodeInfo) {
	at := nodes[0]
	for _, info := range nodes {
		if info.GetAllocatable().GetScalarResources()[name] > 0 {
			at = info
			break
		}
	}
	all := at.GetAllocatable().GetScalarResources()[name]
	if all == 0 && c.hasDeviceClass(name) {
		return // a device class decides, for now
	}
	node := emptied(ctx, at)
	if node == nil || !c.runner.accepts(ctx, state, probe(like), node) {
		return
	}
	greedy := probe(like)
	greedy.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: *resource.NewQuantity(all+1, resource.DecimalSI)}
	greedy.Spec.Containers[0].Resources.Limits = greedy.Spec.Containers[0].Resources.Requests
	c.known[name] = !c.runner.accepts(ctx, state, greedy, node)
}

// probe makes a pod of the same namespace and profile without requests.
func probe(like *v1.Pod) *v1.Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = like.Namespace, "zonewise-probe", probeName
	pod.Spec.SchedulerName, pod.Spec.Priority = like.Spec.SchedulerName, like.Spec.Priority
	pod.Spec.Containers = []v1.Container{{Name: "probe"}}
	return pod
}

// emptied returns a copy of a node without pods, taints and cordon; nil if that fails.
func emptied(ctx context.Context, info fwk.NodeInfo) fwk.NodeInfo {
	node := info.Node().DeepCopy()
	node.Spec.Taints, node.Spec.Unschedulable = nil, false
	empty := info.Snapshot()
	logger := klog.FromContext(ctx)
	for _, p := range info.GetPods() {
		if err := empty.RemovePod(logger, p.GetPod()); err != nil {
			return nil
		}
	}
	empty.SetNode(node)
	return empty
}
