package reservecache

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/reservecache/ledger"
)

// resourcesOf translates the framework's resources into the ledger's.
func resourcesOf(r fwk.Resource) ledger.Resources {
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
	requested := resourcesOf(info.GetRequested())
	requested.Pods = int64(len(info.GetPods()))
	return requested
}

// podsOf returns the pods on a node.
func podsOf(info fwk.NodeInfo) []*v1.Pod {
	pods := make([]*v1.Pod, 0, len(info.GetPods()))
	for _, pod := range info.GetPods() {
		pods = append(pods, pod.GetPod())
	}
	return pods
}

// nominatedOn returns what the pods ask for that are nominated to a node and not on it yet. The queue has no more
// than the name of the pod that is being scheduled, which may be the very one.
func nominatedOn(l *ledger.Ledger, pods corelisters.PodLister, nominator fwk.PodNominator, node string) ledger.Resources {
	var sum ledger.Resources
	for _, info := range upstream.NominatedTo(nominator, node) {
		name := info.GetPod()
		if _, known := l.GetPod(name.UID); known {
			continue // it waits to be bound, and is counted
		}
		pod, err := pods.Pods(name.Namespace).Get(name.Name)
		if err != nil || pod.UID != name.UID {
			continue // it is gone, and so will be its nomination
		}
		requests := l.Requests(pod)
		sum.Add(&requests, 1)
	}
	return sum
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
