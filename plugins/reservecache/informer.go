package reservecache

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"zonewise.dev/internal/informer"
	"zonewise.dev/plugins/reservecache/ledger"
)

// handlers pass on what the informers show. Both informers call theirs from one goroutine each, so that the events of
// one pod, or of one node, are in order; a pod and its node are not.
type handlers struct {
	logger klog.Logger
	*running
}

// addHandlers registers the handlers and returns functions that report whether each has seen its first list.
// Both are removed when ctx ends.
func addHandlers(ctx context.Context, factory informers.SharedInformerFactory, r *running) ([]cache.DoneChecker, error) {
	h := &handlers{logger: klog.FromContext(ctx), running: r}
	var synced []cache.DoneChecker
	for _, kind := range []struct {
		name     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"node", factory.Core().V1().Nodes().Informer(), informer.Latest(h.nodeSeen, h.nodeGone)},
		{"pod", factory.Core().V1().Pods().Informer(), informer.Latest(h.podSeen, h.podGone)},
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

// podSeen takes a pod as the API server shows it.
func (h *handlers) podSeen(pod *v1.Pod) {
	change, err := h.ledger.AddPod(pod)
	if err != nil {
		h.logger.Error(err, "Left a pod out of the ledger", "pod", klog.KObj(pod))
		return
	}
	if pod.Spec.NodeName != "" {
		h.refused.forget(pod.UID)
	}
	h.floor.noteNomination(pod.Status.NominatedNodeName)
	h.changed(pod, change)
}

// podGone records that a pod is gone. Only its UID counts, since its last known state may be old.
func (h *handlers) podGone(pod *v1.Pod) {
	change := h.ledger.RemovePod(pod.UID)
	h.refused.forget(pod.UID)
	h.floor.noteNomination(pod.Status.NominatedNodeName) // no event of the node says that it has ended
	h.changed(pod, change)
}

// changed passes on what an event changed in the ledger.
func (h *handlers) changed(pod *v1.Pod, change ledger.Change) {
	switch change {
	case ledger.Unchanged:
		return
	case ledger.PodMoved:
		// Someone else bound the pod, or our own bind call succeeded for an earlier attempt.
		h.logger.Info("Pod turned up on another node than the ledger had it on", "pod", klog.KObj(pod), "node", klog.KRef("", pod.Spec.NodeName))
	default:
	}
	if logger := h.logger.V(5); logger.Enabled() {
		logger.Info("Ledger heard of pod", "pod", klog.KObj(pod), "node", klog.KRef("", pod.Spec.NodeName), "change", change)
	}
	h.server.RequestPass()
}

func (h *handlers) nodeSeen(node *v1.Node) {
	if h.ledger.AddNode(node) {
		h.server.RequestPass()
	}
}

func (h *handlers) nodeGone(node *v1.Node) {
	if h.ledger.RemoveNode(node) {
		h.server.RequestPass()
	}
}
