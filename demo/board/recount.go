package board

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	v1helper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// amounts are resources in their base unit, the processor in thousandths.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	out := make(amounts, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			out[name] = q.MilliValue()
		} else {
			out[name] = q.Value()
		}
	}
	return out
}

func (a amounts) add(b amounts) {
	for name, n := range b {
		a[name] += n
	}
}

// names returns the resources in a stable order.
func (a amounts) names() []corev1.ResourceName { return slices.Sorted(maps.Keys(a)) }

// requestsOf is what a pod takes from its node, its place among the pods too.
func requestsOf(pod *corev1.Pod) amounts {
	out := amountsOf(resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	out[corev1.ResourcePods] = 1
	return out
}

// nodeCount is a node and everything on it.
type nodeCount struct {
	node        *corev1.Node
	zone        string
	allocatable amounts
	allocated   amounts
	pods        []*corev1.Pod
}

// recount is the cluster, counted from the objects.
type recount struct {
	nodes   map[string]*nodeCount
	order   []*nodeCount // by name
	pending []*corev1.Pod
	// lost are pods that are bound to nodes that do not exist.
	lost []*corev1.Pod
}

func newRecount(nodes []*corev1.Node, pods []*corev1.Pod) *recount {
	r := &recount{nodes: make(map[string]*nodeCount, len(nodes))}
	for _, node := range nodes {
		n := &nodeCount{
			node:        node,
			zone:        node.Labels[corev1.LabelTopologyZone],
			allocatable: amountsOf(node.Status.Allocatable),
			allocated:   amounts{},
		}
		r.nodes[node.Name] = n
		r.order = append(r.order, n)
	}
	slices.SortFunc(r.order, func(a, b *nodeCount) int { return strings.Compare(a.node.Name, b.node.Name) })
	for _, pod := range pods {
		switch {
		case finished(pod):
		case pod.Spec.NodeName == "":
			if pod.DeletionTimestamp == nil {
				r.pending = append(r.pending, pod)
			}
		default:
			n := r.nodes[pod.Spec.NodeName]
			if n == nil {
				r.lost = append(r.lost, pod)
				continue
			}
			n.pods = append(n.pods, pod)
			n.allocated.add(requestsOf(pod))
		}
	}
	return r
}

// finished pods have given their resources back.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// selects reports whether the pod's node selector and node affinity admit the
// node. Both are static here, so an affinity that does not parse admits none.
func selects(pod *corev1.Pod, node *corev1.Node) bool {
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && match
}

// tolerates reports whether the pod may start on the node as far as taints and
// cordons go.
func tolerates(pod *corev1.Pod, node *corev1.Node) bool {
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		// The taint follows the cordon a moment later.
		taints = append(slices.Clone(taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	_, untolerated := v1helper.FindMatchingUntoleratedTaint(klog.Background(), taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, false)
	return !untolerated
}
