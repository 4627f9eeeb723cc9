package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/feature"
	"zonewise.dev/plugins/permitgate/preempt"
	"zonewise.dev/plugins/permitgate/proposal"
)

// probeName is the name of the pod, the label and the taint of probes; no other object has it.
const probeName = "zonewise.dev/probe"

// profileFilters knows what the filters of a profile refuse. It asks them about a hypothetical pod and an empty node,
// so the args of other plugins, such as ignoredResources, need not be known. It is used in scheduling cycles only.
type profileFilters struct {
	runner *filterRunner
	// resources says for each resource that the filters were asked about whether they count it on nodes that list it.
	resources map[v1.ResourceName]bool
	// filters is nil until they have been asked; unfit is true if the profile has no NodeResourcesFit.
	filters *proposal.Filters
	unfit   bool
	// comparisons is true if tolerations may compare numbers.
	comparisons bool
}

func newProfileFilters(r *filterRunner) *profileFilters {
	return &profileFilters{runner: r, resources: map[v1.ResourceName]bool{}, comparisons: feature.TolerationOperators()}
}

// Filters returns which filters the profile runs.
func (c *profileFilters) Filters() proposal.Filters {
	filters := proposal.AllFilters
	if c.filters != nil {
		filters = *c.filters
	}
	filters.TolerationOperators = c.comparisons
	return filters
}

// counts reports whether the filters refuse a pod that asks for more of a resource than a node has left. A resource
// that a node does not list may come from a device class (DRAExtendedResource). Unknown resources count as possible.
func (c *profileFilters) counts(name v1.ResourceName, listed bool) bool {
	return c.resources[name] && (listed || !c.hasDeviceClass(name))
}

func (c *profileFilters) hasDeviceClass(name v1.ResourceName) bool {
	manager := c.runner.handle.SharedDRAManager()
	return manager != nil && manager.DeviceClassResolver().GetDeviceClass(name) != nil
}

// learn asks about the resources that pods request, unless they are known already.
func (c *profileFilters) learn(ctx context.Context, state fwk.CycleState, classes []proposal.Class, nodes []fwk.NodeInfo) {
	if c.runner.run == nil || len(nodes) == 0 || len(classes) == 0 {
		return
	}
	if c.filters == nil {
		c.learnFilters(ctx, state, classes[0].Pod, nodes[0])
	}
	for i := range classes {
		for _, a := range proposal.Requests(classes[i].Pod) {
			switch a.Name {
			case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, v1.ResourcePods:
				continue
			}
			if _, known := c.resources[a.Name]; !known {
				c.learnResource(ctx, state, classes[i].Pod, a.Name, nodes)
			}
		}
	}
}

// learnResource asks whether a request above the allocatable of a resource is refused.
func (c *profileFilters) learnResource(ctx context.Context, state fwk.CycleState, like *v1.Pod, name v1.ResourceName, nodes []fwk.NodeInfo) {
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
	node := emptied(ctx, at, func(*v1.Node) {})
	if node == nil || !c.runner.accepts(ctx, state, probe(like), node) {
		return
	}
	greedy := probe(like)
	greedy.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: *resource.NewQuantity(all+1, resource.DecimalSI)}
	greedy.Spec.Containers[0].Resources.Limits = greedy.Spec.Containers[0].Resources.Requests
	c.resources[name] = !c.runner.accepts(ctx, state, greedy, node)
}

// learnFilters asks whether node selectors, taints, cordons, host ports and affinity between pods are respected.
func (c *profileFilters) learnFilters(ctx context.Context, state fwk.CycleState, like *v1.Pod, at fwk.NodeInfo) {
	node := emptied(ctx, at, func(*v1.Node) {})
	if node == nil || !c.runner.accepts(ctx, state, probe(like), node) {
		return
	}
	filters := proposal.AllFilters
	selecting := probe(like)
	selecting.Spec.NodeSelector = map[string]string{probeName: "none"}
	filters.Selectors = !c.runner.accepts(ctx, state, selecting, node)
	filters.Taints = !c.runner.accepts(ctx, state, probe(like), emptied(ctx, at, func(n *v1.Node) {
		n.Spec.Taints = []v1.Taint{{Key: probeName, Effect: v1.TaintEffectNoSchedule}}
	}))
	filters.Cordons = !c.runner.accepts(ctx, state, probe(like), emptied(ctx, at, func(n *v1.Node) { n.Spec.Unschedulable = true }))
	ported := probe(like)
	ported.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 1, HostPort: 1, Protocol: v1.ProtocolTCP}}
	busy := emptied(ctx, at, func(*v1.Node) {})
	busy.GetUsedPorts().Add("", string(v1.ProtocolTCP), 1)
	filters.Ports = !c.runner.accepts(ctx, state, ported, busy)
	filters.Affinity = c.keepsApart(ctx, state, like, at)
	c.filters = &filters
	greedy := probe(like)
	cpu := *resource.NewMilliQuantity(at.GetAllocatable().GetMilliCPU()+1, resource.DecimalSI)
	greedy.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: cpu}
	c.unfit = c.runner.accepts(ctx, state, greedy, node)
}

// keepsApart asks whether a pod with an anti-affinity to pods like itself is refused by a node that has one.
func (c *profileFilters) keepsApart(ctx context.Context, state fwk.CycleState, like *v1.Pod, at fwk.NodeInfo) bool {
	node := emptied(ctx, at, func(n *v1.Node) { metav1.SetMetaDataLabel(&n.ObjectMeta, v1.LabelHostname, n.Name) })
	apart := probe(like)
	apart.Labels = map[string]string{probeName: probeName}
	apart.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{
		TopologyKey: v1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: apart.Labels},
	}}}}
	state, _, ok := c.runner.State(ctx, state, apart)
	if !ok {
		return true
	}
	other := preempt.NewPodInfo(apart)
	node.AddPodInfo(other)
	return !c.runner.handle.RunPreFilterExtensionAddPod(ctx, state, apart, other, node).IsSuccess() ||
		!c.runner.handle.RunFilterPlugins(ctx, state, apart, node).IsSuccess()
}

// probe makes a pod of the same namespace and profile without requests.
func probe(like *v1.Pod) *v1.Pod {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = like.Namespace, "zonewise-probe", probeName
	pod.Spec.SchedulerName, pod.Spec.Priority = like.Spec.SchedulerName, like.Spec.Priority
	pod.Spec.Containers = []v1.Container{{Name: "probe"}}
	return pod
}

// emptied returns a copy of a node without pods, taints and cordon, changed by f; nil if that fails.
func emptied(ctx context.Context, info fwk.NodeInfo, f func(node *v1.Node)) fwk.NodeInfo {
	node := info.Node().DeepCopy()
	node.Spec.Taints, node.Spec.Unschedulable = nil, false
	f(node)
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
