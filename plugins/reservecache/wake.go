package reservecache

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/holds"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/waiting"
)

// activator is the part of the framework's handle that wakes pods.
type activator interface {
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
}

// waker sends pods that holds kept out back to the scheduling queue when there is room for them. It implements
// serve.Waker.
type waker struct {
	running *running
	handle  activator
	// comparisons reports whether tolerations may compare numbers. Asking the feature gate for each pod would
	// dominate the cost.
	comparisons bool
}

// Wake implements serve.Waker.
func (w *waker) Wake(ctx context.Context, freed []string, nodes *ledger.Snapshot) (next time.Time) {
	r := w.running
	r.waiting.Opened(freed)
	if r.waiting.Empty() {
		return time.Time{}
	}
	cluster := &waiting.Cluster{
		Node: func(name string) (waiting.Node, bool) {
			n := nodes.Node(name)
			if n == nil {
				return waiting.Node{}, false
			}
			return waiting.Node{
				Object: n.Node, Pods: n.Pods, Allocatable: n.Allocatable, Requested: n.Requested,
				Holds: r.holds.Node(name), Owned: r.server.OwnedOn(nodes, n),
			}, true
		},
		Requester: func(pod *v1.Pod) holds.Requester {
			requester, _ := r.requesterOf(pod)
			return requester
		},
		MayGo: w.mayGo,
	}
	// Their backoff is that of another reservation's pods.
	chosen := r.waiting.Reowned(r.server.Version(), cluster.Requester)
	picked := r.waiting.Pick(r.clock.Now(), cluster)
	maps.Copy(chosen, picked.Pods)
	if len(chosen) > 0 {
		logger := klog.FromContext(ctx)
		logger.V(4).Info("Activating pods that may now find room", "pods", len(chosen))
		w.handle.Activate(logger, chosen)
	}
	return picked.Next
}

// mayGo reports whether a pod's own words allow it on a node, so that it is not woken for nothing. The filters decide.
func (w *waker) mayGo(pod *v1.Pod, node *v1.Node) bool {
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err == nil && !match {
		return false
	}
	taints := node.Spec.Taints
	if node.Spec.Unschedulable {
		taints = append(slices.Clip(taints), v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
	}
	_, untolerated := schedulingv1.FindMatchingUntoleratedTaint(klog.Logger{}, taints, pod.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect != v1.TaintEffectPreferNoSchedule
	}, w.comparisons)
	return !untolerated
}
