package reservecache

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/reservations"
)

// handlers tell the ledger what the informers tell them. Both informers call theirs from one goroutine
// each, so that the events of one pod, or of one node, are in order; a pod and its node are not.
type handlers struct {
	logger klog.Logger
	*running
}

// addHandlers registers the handlers and returns what tells that each has seen all objects of the start.
// Both are removed when ctx ends.
func addHandlers(ctx context.Context, factory informers.SharedInformerFactory, r *running) ([]cache.DoneChecker, error) {
	h := &handlers{logger: klog.FromContext(ctx), running: r}
	var synced []cache.DoneChecker
	for _, kind := range []struct {
		name     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"node", factory.Core().V1().Nodes().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: h.addNode, UpdateFunc: h.updateNode, DeleteFunc: h.deleteNode}},
		{"pod", factory.Core().V1().Pods().Informer(), cache.ResourceEventHandlerFuncs{AddFunc: h.addPod, UpdateFunc: h.updatePod, DeleteFunc: h.deletePod}},
	} {
		registration, err := kind.informer.AddEventHandler(kind.handler)
		if err != nil {
			return nil, fmt.Errorf("adding a handler to the %s informer: %w", kind.name, err)
		}
		context.AfterFunc(ctx, func() {
			if err := kind.informer.RemoveEventHandler(registration); err != nil {
				h.logger.V(4).Info("Could not remove an informer handler", "kind", kind.name, "err", err)
			}
		})
		synced = append(synced, registration.HasSyncedChecker())
	}
	return synced, nil
}

func (h *handlers) addPod(obj any) {
	if pod, ok := h.pod(obj); ok {
		h.told(pod, h.ledger.AddPod)
	}
}

func (h *handlers) updatePod(oldObj, newObj any) {
	oldPod, ok := h.pod(oldObj)
	if !ok {
		return
	}
	if newPod, ok := h.pod(newObj); ok {
		if oldPod.UID != newPod.UID {
			h.forget(oldPod)
		}
		h.told(newPod, func(pod *v1.Pod) (ledger.Change, error) { return h.ledger.UpdatePod(oldPod, pod) })
	}
}

func (h *handlers) deletePod(obj any) {
	if pod, ok := h.pod(obj); ok {
		h.forget(pod)
		h.told(pod, func(pod *v1.Pod) (ledger.Change, error) { return h.ledger.RemovePod(pod.UID), nil })
	}
}

// forget drops what is kept of a pod beside the ledger.
func (h *handlers) forget(pod *v1.Pod) {
	h.blocked.forget(pod.UID)
	h.reservations.PodGone(pod.UID)
}

// told passes an event on and logs what it changed.
func (h *handlers) told(pod *v1.Pod, apply func(*v1.Pod) (ledger.Change, error)) {
	change, err := apply(pod)
	if change == ledger.Unchanged {
		h.reservations.PodSeen(pod)
	} else {
		h.reservations.PodGone(pod.UID)
		h.reservations.PodsChanged(change == ledger.PodRemoved || change == ledger.PodMoved || change == ledger.PodUpdated)
	}
	switch {
	case err != nil:
		h.logger.Error(err, "Left a pod out of the ledger", "pod", klog.KObj(pod))
	case change == ledger.PodMoved:
		// Someone else bound the pod, or our own bind call succeeded for an earlier attempt.
		h.logger.Info("Pod turned up on another node than the ledger had it on", "pod", klog.KObj(pod), "node", klog.KRef("", pod.Spec.NodeName))
	default:
		if logger := h.logger.V(5); logger.Enabled() {
			logger.Info("Ledger heard of pod", "pod", klog.KObj(pod), "node", klog.KRef("", pod.Spec.NodeName), "change", change)
		}
	}
}

// pod returns the pod of an event. A pod whose deletion was missed comes with its last known state, of
// which only the UID counts.
func (h *handlers) pod(obj any) (*v1.Pod, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*v1.Pod)
	if !ok || pod == nil {
		h.logger.Error(nil, "Unexpected object from the pod informer", "type", fmt.Sprintf("%T", obj))
		return nil, false
	}
	return pod, true
}

func (h *handlers) addNode(obj any) {
	if node, ok := h.node(obj); ok {
		h.ledger.AddNode(node)
		h.reservations.NodesChanged()
	}
}

func (h *handlers) updateNode(oldObj, newObj any) {
	oldNode, _ := h.node(oldObj)
	if node, ok := h.node(newObj); ok {
		h.ledger.UpdateNode(node)
		if oldNode == nil || reservations.TellsOfSlots(oldNode, node) {
			h.reservations.NodesChanged()
		}
	}
}

func (h *handlers) deleteNode(obj any) {
	if node, ok := h.node(obj); ok {
		h.ledger.RemoveNode(node)
		h.reservations.NodesChanged()
	}
}

// node returns the node of an event, as pod does.
func (h *handlers) node(obj any) (*v1.Node, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	node, ok := obj.(*v1.Node)
	if !ok || node == nil {
		h.logger.Error(nil, "Unexpected object from the node informer", "type", fmt.Sprintf("%T", obj))
		return nil, false
	}
	return node, true
}
