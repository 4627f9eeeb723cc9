package deletioncosts

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	declared "zonewise.dev/cmd/controller/deletioncosts/metrics"
	"zonewise.dev/internal/crd"
	"zonewise.dev/internal/message"
)

// maxRefused is in how many groups writes are tried that are refused, before all others wait as well: the API server
// may be away.
const maxRefused = 10

// write writes what is planned, as far as it is allowed now, and returns after how long to look again.
func (c *Controller) write(ctx context.Context, p *plan, now time.Time) (next time.Duration) {
	next = p.next
	slices.SortStableFunc(p.changes, func(a, b change) int {
		return cmp.Compare(c.refused[a.group()], c.refused[b.group()])
	})
	refused := map[string]int{}
	for i := range p.changes {
		change := &p.changes[i]
		if refused[change.group()] > 0 {
			continue // what refuses one refuses the others, and they are not to take the turns of all
		}
		if len(refused) == maxRefused {
			break
		}
		allowed, wait := c.allowed.take(now)
		if !allowed {
			next = min(next, max(wait, time.Second)) // the cluster is not read again for each single one
			break
		}
		if err := c.writeCost(ctx, change.pod, change.cost); err != nil {
			next = min(next, retryInterval)
			refused[change.group()] = 1
			if change.set != nil && !apierrors.IsConflict(err) {
				change.set.failed = message.OneLine(err)
			}
			klog.FromContext(ctx).Error(err, "Cannot write a deletion cost", "pod", klog.KObj(change.pod))
			continue
		}
		change.written = true
	}
	c.refused = refused
	return min(next, c.writeAnswers(ctx, p.answers(), now))
}

// writeAnswers writes the conditions of policies that are other ones now, and returns after how long to try again.
func (c *Controller) writeAnswers(ctx context.Context, answers []answer, now time.Time) (next time.Duration) {
	next = idleInterval
	for _, a := range answers {
		if err := c.answer(ctx, a, now); err != nil {
			next = min(next, retryInterval)
			if !apierrors.IsConflict(err) {
				klog.FromContext(ctx).Error(err, "Cannot write the status", "zonespreadpolicy", klog.KObj(a.policy))
			}
		}
	}
	return next
}

// writeCost gives a pod a cost, or takes it away if it is 0. The API server refuses it if the pod is another one, or if
// the annotation is of another field manager.
func (c *Controller) writeCost(ctx context.Context, pod *v1.Pod, cost int32) error {
	applied := corev1.Pod(pod.Name, pod.Namespace).WithUID(pod.UID)
	if cost != 0 {
		applied.WithAnnotations(map[string]string{v1.PodDeletionCost: strconv.Itoa(int(cost))})
	}
	err := client.IgnoreNotFound(c.client.Apply(ctx, applied, client.FieldOwner(fieldManager)))
	result := "accepted"
	if err != nil {
		result = "refused"
	}
	declared.Writes.WithLabelValues(result).Inc()
	return err
}

// answer writes the condition of a policy if it is another one.
func (c *Controller) answer(ctx context.Context, a answer, now time.Time) error {
	changed := a.policy.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionScaleDownOrdered, Status: a.status, Reason: a.reason, Message: crd.Shortened(a.message),
		ObservedGeneration: a.policy.Generation, LastTransitionTime: metav1.NewTime(now).Rfc3339Copy(),
	})
	if equality.Semantic.DeepEqual(changed.Status.Conditions, a.policy.Status.Conditions) {
		return nil
	}
	return client.IgnoreNotFound(c.client.Status().Patch(
		ctx, changed, client.MergeFromWithOptions(a.policy, client.MergeFromWithOptimisticLock{}),
	))
}
