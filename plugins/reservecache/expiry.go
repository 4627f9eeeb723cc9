package reservecache

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/reservecache/ledger"
)

// readTimeout bounds one read of the API server.
const readTimeout = 10 * time.Second

// expirer drops assumed pods that the pod informer has not confirmed for longer than assumedPodTTL, if the
// API server agrees that they take no capacity. It has a goroutine of its own, so that no scheduling waits
// for its reads.
type expirer struct {
	ledger *ledger.Ledger
	client kubernetes.Interface
	ttl    time.Duration
	clock  clock.WithTicker
	// freed is called when a pod was dropped.
	freed func()
}

// run looks for overdue pods until ctx ends.
func (e *expirer) run(ctx context.Context) {
	ticker := e.clock.NewTicker(max(e.ttl/4, time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			e.expire(ctx)
		}
	}
}

// expire asks about each pod that is overdue now.
func (e *expirer) expire(ctx context.Context) {
	logger := klog.FromContext(ctx)
	for _, status := range e.ledger.AssumedBefore(e.clock.Now().Add(-e.ttl)) {
		logger := logger.WithValues("pod", klog.KObj(status.Pod), "node", klog.KRef("", status.Node), "assumedAt", status.AssumedAt)
		live, err := e.read(ctx, status.Pod)
		if err != nil {
			// What is not known is not freed.
			logger.Error(err, "Could not ask the API server about a pod that has been assumed for longer than assumedPodTTL")
			continue
		}
		reason, free := takesNothing(status, live)
		if !free {
			logger.V(2).Info("Kept a pod that has been assumed for longer than assumedPodTTL", "reason", reason)
			continue
		}
		if e.ledger.ExpirePod(status.Pod.UID, status) {
			e.freed()
			expiredPods.Inc()
			logger.Info("Dropped a pod that has been assumed for longer than assumedPodTTL", "reason", reason)
		}
	}
}

// read returns the pod as the API server has it, or nil when there is none of that name.
func (e *expirer) read(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	// Without a resource version the answer is the latest, not one from a cache.
	live, err := e.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return live, err
}

// takesNothing reports whether the pod in the API server (nil if there is none) proves that an assumed pod takes
// no capacity, and the reason.
func takesNothing(status ledger.PodStatus, live *v1.Pod) (reason string, free bool) {
	switch {
	case live == nil:
		return "the pod is gone", true
	case live.UID != status.Pod.UID:
		return "the pod was replaced by another of its name", true
	case pods.Ended(live):
		return "the pod has finished", true
	case live.Spec.NodeName != "":
		return "the pod is bound, and the informer will show it", false
	case live.DeletionTimestamp != nil:
		return "the pod is being deleted and can no longer be bound", true
	case status.FinishedAt.IsZero():
		// It may wait in Permit, in PreBind or for the answer of the bind call. The framework unreserves
		// it if that fails.
		return "the binding is under way", false
	default:
		return "the pod is not bound", true
	}
}
