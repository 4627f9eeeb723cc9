package permitgate

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
)

const (
	// statusPause gathers changes: a gang's status is written at most twice a second.
	statusPause = 500 * time.Millisecond
	// A write that failed is repeated after statusRetry, then after twice as long each time, up to
	// statusRetryMax; a change of the PodGroup or its pods repeats it at once.
	statusRetry    = time.Second
	statusRetryMax = 5 * time.Minute
)

func newStatusQueue() workqueue.TypedRateLimitingInterface[types.NamespacedName] {
	return workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](statusRetry, statusRetryMax))
}

// StatusPatcher is what a [PodGroupWatch] implements besides when the status of its PodGroups can be written.
type StatusPatcher interface {
	// PatchStatus applies a JSON merge patch to the status subresource of a PodGroup.
	PatchStatus(ctx context.Context, namespace, name string, patch []byte) error
}

// writeStatuses keeps the status of the PodGroups current until its queue is shut down. Only the
// leader runs it.
func (s *Shared) writeStatuses(ctx context.Context, patcher StatusPatcher) {
	logger := klog.FromContext(ctx)
	for {
		key, shutdown := s.statusQueue.Get()
		if shutdown {
			return
		}
		switch err := s.writeStatus(ctx, patcher, key); {
		case err == nil:
			s.statusQueue.Forget(key)
		case ctx.Err() != nil:
		case apierrors.IsConflict(err):
			// The watch is about to bring a newer PodGroup.
			logger.V(4).Info("The PodGroup has changed meanwhile", "podGroup", key, "err", err)
			s.statusQueue.AddRateLimited(key)
		default:
			logger.Error(err, "Could not write the status of a PodGroup; will try again", "podGroup", key)
			s.statusQueue.AddRateLimited(key)
		}
		s.statusQueue.Done(key)
	}
}

// writeStatus writes one PodGroup's status if it is not what it should be.
func (s *Shared) writeStatus(ctx context.Context, patcher StatusPatcher, key types.NamespacedName) error {
	var (
		group *v1alpha1.PodGroup
		want  v1alpha1.PodGroupStatus
	)
	s.look(key, func(e *entry, now time.Time) {
		if group = e.group; group != nil {
			want = desiredStatus(group.Status, group.Spec.MinMember, e.facts, e.gang.Phase() == gang.Releasing, now)
		}
	})
	if group == nil || apiequality.Semantic.DeepEqual(group.Status, want) {
		return nil
	}
	patch, err := statusPatch(group, want)
	if err != nil {
		return err
	}
	if err := patcher.PatchStatus(ctx, key.Namespace, key.Name, patch); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// statusPatch returns the merge patch that gives a PodGroup its status. It names the version that the
// status was made for, so that the API server refuses it when somebody else was faster, or when the
// PodGroup has been replaced by another of its name.
func statusPatch(group *v1alpha1.PodGroup, want v1alpha1.PodGroupStatus) ([]byte, error) {
	status := map[string]any{
		"phase": want.Phase, "occupiedBy": want.OccupiedBy,
		"running": want.Running, "succeeded": want.Succeeded, "failed": want.Failed,
	}
	if !want.ScheduleStartTime.IsZero() {
		status["scheduleStartTime"] = want.ScheduleStartTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": group.ResourceVersion},
		"status":   status,
	})
	if err != nil {
		return nil, fmt.Errorf("status of PodGroup %s/%s: %w", group.Namespace, group.Name, err)
	}
	return patch, nil
}
