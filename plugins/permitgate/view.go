package permitgate

import (
	"iter"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/plan"
)

// view is the cluster as a gang may use it: the snapshot of the cycle, less what others hold and less the pods
// of equal or higher priority that are nominated to a node. It may be read from several goroutines.
type view struct {
	nodes     []fwk.NodeInfo
	nominated func(node string) []fwk.PodInfo
	held      HoldsView // nil when nothing is held
	gang      types.UID
	priority  int32
	member    func(uid types.UID) bool
	// gone are pods, by node, that the cluster is looked at without.
	gone map[string]map[types.UID]bool
	// barred are pods that cannot be evicted.
	barred map[types.UID]bool
}

var _ plan.Cluster = &view{}

// Len implements plan.Cluster.
func (v *view) Len() int { return len(v.nodes) }

// Node implements plan.Cluster.
func (v *view) Node(i int) *v1.Node { return v.nodes[i].Node() }

// Free implements plan.Cluster.
func (v *view) Free(i int, names []v1.ResourceName, into []int64) {
	info := v.nodes[i]
	leftOn(info, names, into)
	name := info.Node().Name
	if gone := v.gone[name]; len(gone) > 0 {
		for _, p := range info.GetPods() {
			if gone[p.GetPod().UID] {
				for j, gain := range gainOf(p, names) {
					into[j] += gain
				}
			}
		}
	}
	var coming map[types.UID]bool
	for _, nominated := range v.nominated(name) {
		pod := nominated.GetPod()
		if corev1.PodPriority(pod) < v.priority || v.member(pod.UID) || v.isOn(info, pod.UID) {
			continue
		}
		if coming == nil {
			coming = map[types.UID]bool{}
		}
		coming[pod.UID] = true
		plan.Subtract(pod, names, into)
	}
	if v.held != nil {
		gone := v.gone[name]
		present := func(uid types.UID) bool { return coming[uid] || !gone[uid] && v.isOn(info, uid) }
		v.held.Subtract(name, v.gang, v.priority, present, names, into)
	}
}

// leftOn sets into to what the pods on a node leave of each resource.
func leftOn(info fwk.NodeInfo, names []v1.ResourceName, into []int64) {
	allocatable, requested := info.GetAllocatable(), info.GetRequested()
	for j, name := range names {
		if name == v1.ResourcePods {
			into[j] = int64(allocatable.GetAllowedPodNumber() - len(info.GetPods()))
		} else {
			into[j] = amountOf(allocatable, name) - amountOf(requested, name)
		}
	}
}

// amountOf returns an amount of a resource other than the number of pods.
func amountOf(r fwk.Resource, name v1.ResourceName) int64 {
	switch name {
	case v1.ResourceCPU:
		return r.GetMilliCPU()
	case v1.ResourceMemory:
		return r.GetMemory()
	case v1.ResourceEphemeralStorage:
		return r.GetEphemeralStorage()
	}
	return r.GetScalarResources()[name]
}

func (*view) isOn(info fwk.NodeInfo, uid types.UID) bool {
	for _, p := range info.GetPods() {
		if p.GetPod().UID == uid {
			return true
		}
	}
	return false
}

// Pods implements plan.Cluster.
func (v *view) Pods(i int) iter.Seq[*v1.Pod] {
	return func(yield func(*v1.Pod) bool) {
		gone := v.gone[v.Node(i).Name]
		for _, p := range v.nodes[i].GetPods() {
			if gone[p.GetPod().UID] {
				continue
			}
			if !yield(p.GetPod()) {
				return
			}
		}
	}
}

// PortTaken implements plan.Cluster.
func (v *view) PortTaken(i int, port *v1.ContainerPort) bool {
	used := v.nodes[i].GetUsedPorts()
	if !used.CheckConflict(port.HostIP, string(port.Protocol), port.HostPort) {
		return false
	}
	gone := v.gone[v.Node(i).Name]
	if len(gone) == 0 {
		return true
	}
	left := fwk.HostPortInfo{}
	for _, one := range v.nodes[i].GetPods() {
		if gone[one.GetPod().UID] {
			continue
		}
		for _, taken := range plan.HostPorts(one.GetPod()) {
			left.Add(taken.HostIP, string(taken.Protocol), taken.HostPort)
		}
	}
	return left.CheckConflict(port.HostIP, string(port.Protocol), port.HostPort)
}
