package reservecache

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
	schedulingv1 "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

// amounts translates the framework's resources into the ledger's.
func amounts(r fwk.Resource) ledger.Resources {
	return ledger.Resources{
		MilliCPU:         r.GetMilliCPU(),
		Memory:           r.GetMemory(),
		EphemeralStorage: r.GetEphemeralStorage(),
		Pods:             int64(r.GetAllowedPodNumber()),
		Scalar:           r.GetScalarResources(),
	}
}

// requestedOf returns what is requested of a node, its pods included.
func requestedOf(info fwk.NodeInfo) ledger.Resources {
	requested := amounts(info.GetRequested())
	requested.Pods = int64(len(info.GetPods()))
	return requested
}

// podsOf are the pods of a node in a cycle.
type podsOf []fwk.PodInfo

// has reports whether a pod is on the node.
func (p podsOf) has(uid types.UID) bool {
	for _, info := range p {
		if info.GetPod().UID == uid {
			return true
		}
	}
	return false
}

// hasAtLeast reports whether a pod of at least that priority is on the node, as if all others were gone.
func (p podsOf) hasAtLeast(uid types.UID, priority int32) bool {
	for _, info := range p {
		if pod := info.GetPod(); pod.UID == uid {
			return schedulingv1.PodPriority(pod) >= priority
		}
	}
	return false
}

// cycleView shows the nodes of a scheduling cycle to the planner.
type cycleView []fwk.NodeInfo

// Len implements placement.View.
func (v cycleView) Len() int { return len(v) }

// Changed implements placement.View.
func (v cycleView) Changed(known []int64, changed func(i int, generation int64)) {
	for i, info := range v {
		if g := info.GetGeneration(); i >= len(known) || known[i] != g {
			changed(i, g)
		}
	}
}

// Node implements placement.View.
func (v cycleView) Node(i int) *v1.Node { return v[i].Node() }

// Resources implements placement.View.
func (v cycleView) Resources(i int) (allocatable, requested ledger.Resources) {
	return amounts(v[i].GetAllocatable()), requestedOf(v[i])
}

// Present implements placement.View.
func (v cycleView) Present(i int, uid types.UID) bool { return podsOf(v[i].GetPods()).has(uid) }

// nomineesOf returns the pods that are nominated to a node and not on it yet.
func nomineesOf(l *ledger.Ledger, nominator fwk.PodNominator, node string) []placement.Nominee {
	pods := nominator.NominatedPodsForNode(node)
	if len(pods) == 0 {
		return nil
	}
	nominees := make([]placement.Nominee, 0, len(pods))
	for _, info := range pods {
		pod := info.GetPod()
		if _, known := l.GetPod(pod.UID); known {
			continue // it waits to be bound, and is counted
		}
		nominees = append(nominees, placement.Nominee{Priority: schedulingv1.PodPriority(pod), Requests: l.Requests(pod)})
	}
	return nominees
}

// trails returns a function that reports whether the ledger has a bound pod on a node which the pod informer's store has no longer
// there: the event is on its way.
func trails(l *ledger.Ledger, factory informers.SharedInformerFactory) func(string) bool {
	pods := factory.Core().V1().Pods().Lister()
	return func(node string) bool {
		for _, p := range l.PodsOn(node) {
			if p.State != ledger.Added {
				continue
			}
			if is, err := pods.Pods(p.Pod.Namespace).Get(p.Pod.Name); err != nil || is.UID != p.Pod.UID || is.Spec.NodeName != node {
				return true
			}
		}
		return false
	}
}

// nowhere is the source of a scheduler without an API server: it has no reservations.
type nowhere struct{}

var (
	_ crd.Source = nowhere{}
	_ crd.Kind   = nowhere{}
)

// Watch implements crd.Source.
func (nowhere) Watch(context.Context, client.Object, toolscache.ResourceEventHandler, func(bool)) (crd.Kind, error) {
	return nowhere{}, nil
}

// PatchStatus implements crd.Source.
func (nowhere) PatchStatus(context.Context, client.Object, client.Object) error {
	return errors.New("there is no API server")
}

// Read implements crd.Source.
func (nowhere) Read(context.Context, client.Object) error {
	return errors.New("there is no API server")
}

// Available implements crd.Kind.
func (nowhere) Available() bool { return false }

// HasSynced implements crd.Kind.
func (nowhere) HasSynced() bool { return false }

// Settled implements crd.Kind.
func (nowhere) Settled() bool { return true }
