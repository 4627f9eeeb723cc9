package permitgate

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/permitgate/proposal"
)

// Holds knows room that is promised to pods that are not there yet, such as slots of reservations.
type Holds interface {
	// Kept adds to kept[i] the amount of names[i] (thousandths for cpu, the number of pods for pods) that unused holds
	// on the node keep from the pod, given the pods in the NodeInfo. It is called in scheduling cycles only.
	Kept(pod *v1.Pod, node fwk.NodeInfo, names []v1.ResourceName, kept []int64)
	// Own adds what is held there for pods such as the pod, and unused.
	Own(pod *v1.Pod, node fwk.NodeInfo, names []v1.ResourceName, own []int64)
	// Owns reports whether holds are for pods such as the pod, on whichever nodes. It may be called at any time.
	Owns(pod *v1.Pod) bool
}

// clusterView shows the nodes of a scheduling cycle as a gang may use them. It implements proposal.Cluster.
type clusterView struct {
	nodes   []fwk.NodeInfo
	counted *countedResources
	// promised are the pods that are nominated to a node, or that other gangs plan there.
	promised map[string][]promise
	holds    Holds // nil without
	// claim is the nodes that a gang keeps, nil if none does, and nominated reports whether a member is nominated to one.
	claim     *nodeClaim
	nominated func(pod *v1.Pod, node string) bool
}

var _ proposal.Cluster = &clusterView{}

// Len implements proposal.Cluster.
func (v *clusterView) Len() int { return len(v.nodes) }

// Node implements proposal.Cluster.
func (v *clusterView) Node(i int) *v1.Node { return v.nodes[i].Node() }

// Free implements proposal.Cluster.
func (v *clusterView) Free(i int, names []v1.ResourceName, into []int64) {
	info := v.nodes[i]
	allocatable, requested := info.GetAllocatable(), info.GetRequested()
	for j, name := range names {
		switch name {
		case v1.ResourcePods:
			into[j] = int64(allocatable.GetAllowedPodNumber() - len(info.GetPods()))
		case v1.ResourceCPU:
			into[j] = allocatable.GetMilliCPU() - requested.GetMilliCPU()
		case v1.ResourceMemory:
			into[j] = allocatable.GetMemory() - requested.GetMemory()
		case v1.ResourceEphemeralStorage:
			into[j] = allocatable.GetEphemeralStorage() - requested.GetEphemeralStorage()
		default:
			all := allocatable.GetScalarResources()[name]
			into[j] = all - requested.GetScalarResources()[name]
			if !v.counted.counts(name, all > 0) {
				into[j] = proposal.Unlimited
			}
		}
	}
}

// Kept implements proposal.Cluster.
func (v *clusterView) Kept(i int, pod *v1.Pod, names []v1.ResourceName, into []int64) {
	info := v.nodes[i]
	if v.claim != nil && v.claim.keepsOff(pod, info, v.holds, v.nominated) {
		for j := range into {
			into[j] += proposal.Unlimited
		}
		return
	}
	for _, coming := range v.promised[info.Node().Name] {
		// The filters do not count nominated pods of a lower priority than the pod's either.
		if coming.priority >= corev1.PodPriority(pod) && !isOn(info, coming.pod) {
			proposal.Add(into, names, coming.amounts)
		}
	}
	if v.holds != nil {
		v.holds.Kept(pod, info, names, into)
	}
}

// isOn reports whether a pod is on a node.
func isOn(info fwk.NodeInfo, uid types.UID) bool {
	for _, p := range info.GetPods() {
		if p.GetPod().UID == uid {
			return true
		}
	}
	return false
}

// promise is what a pod will take from a node.
type promise struct {
	pod      types.UID
	priority int32
	amounts  []proposal.Amount
}

// promise returns what a member will take from its node.
func (m *member) promise() promise { return promise{m.pod.UID, corev1.PodPriority(m.pod), m.amounts} }

// promisedTo lists the promises of all nodes, for a gang: what other gangs plan, and nominated pods. It is called in a
// scheduling cycle, without locks.
func (g *gangs) promisedTo(req *gangRequest, nominator fwk.PodNominator, nominated sets.Set[string]) map[string][]promise {
	promised := map[string][]promise{}
	known := maps.Clone(req.members)
	g.mu.Lock()
	for e := range g.open {
		if e.id == req.gangID {
			continue
		}
		if len(e.plan.hints) > 0 {
			for uid := range e.pods {
				known[uid] = true // its nomination, too, is a part of the plan
			}
		}
		if e.preempting != nil { // members are tried there first
			for uid, node := range e.preempting.nodes {
				if m := e.pods[uid]; m != nil {
					known[uid] = true
					promised[node] = append(promised[node], m.promise())
				}
			}
			continue
		}
		for _, h := range e.plan.hints {
			for _, node := range h.nodes[:h.members] {
				promised[node] = append(promised[node], h.promise)
			}
		}
	}
	g.mu.Unlock()
	for node := range nominated {
		for _, p := range upstream.NominatedTo(nominator, node) {
			if pod := p.GetPod(); !known[pod.UID] {
				promised[node] = append(promised[node], promise{pod.UID, corev1.PodPriority(pod), proposal.Requests(pod)})
			}
		}
	}
	return promised
}
