package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/reservecache/ledger"
)

// activator is the part of the framework's handle that wakes pods.
type activator interface {
	Activate(logger klog.Logger, pods map[string]*v1.Pod)
}

// waker sends the pods that holds kept out back to the scheduling queue when holds change. What happens to pods and
// nodes wakes them by hints. It must not be called from a hint, nor with a lock held that a hint takes.
type waker struct {
	running *running
	handle  activator
}

// Freed wakes all of them: which of them fit now is for the scheduler to find out.
func (w *waker) Freed(ctx context.Context) {
	w.activate(ctx, "less is held, or for others", func(*v1.Pod) bool { return true })
}

// Placed wakes the owners of new slots.
func (w *waker) Placed(ctx context.Context, claims map[ledger.ClaimID]bool) {
	w.activate(ctx, "slots were placed", func(pod *v1.Pod) bool {
		owner := w.running.reservations.OwnerOf(pod)
		return owner != nil && claims[owner.Claim]
	})
}

func (w *waker) activate(ctx context.Context, because string, which func(*v1.Pod) bool) {
	pods := w.running.blocked.take(which)
	if len(pods) == 0 {
		return
	}
	logger := klog.FromContext(ctx)
	logger.V(4).Info("Activating pods", "pods", len(pods), "because", because)
	w.handle.Activate(logger, pods)
}
