package deletioncosts

import (
	"context"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
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

// writesAtOnce is how many costs are written in one look at most.
const writesAtOnce = 100

// writeCosts writes what is planned, beginning with the namespace after that of the last cost, and reports whether all
// is written.
func (c *Controller) writeCosts(ctx context.Context, plans []*plan) bool {
	done, left := true, writesAtOnce
	first := max(0, slices.IndexFunc(plans, func(p *plan) bool { return p.namespace > c.last }))
	for _, p := range slices.Concat(plans[first:], plans[:first]) {
		for i := range p.changes {
			if left == 0 {
				return false
			}
			left--
			c.last = p.namespace
			if !c.writeCost(ctx, &p.changes[i]) {
				done = false
				break // what refuses one refuses the others of the namespace
			}
		}
	}
	return done
}

// writeCost gives a pod its cost, or takes it away if that is 0, and reports whether the API server has accepted it. It
// refuses it if the pod is another one, or if the annotation is of another field manager.
func (c *Controller) writeCost(ctx context.Context, change *change) bool {
	pod := change.pod
	applied := corev1.Pod(pod.Name, pod.Namespace).WithUID(pod.UID)
	if change.cost != 0 {
		applied.WithAnnotations(map[string]string{v1.PodDeletionCost: strconv.Itoa(int(change.cost))})
	}
	if err := client.IgnoreNotFound(c.shared.Client.Apply(ctx, applied, client.FieldOwner(fieldManager))); err != nil {
		declared.Writes.WithLabelValues("refused").Inc()
		klog.FromContext(ctx).Error(err, "Cannot write a deletion cost", "pod", klog.KObj(pod))
		if change.keeper != nil && !apierrors.IsConflict(err) { // a conflict: the next look shows the other manager
			change.keeper.failed = "Pod " + pod.Name + ": " + message.OneLine(err)
		}
		return false
	}
	declared.Writes.WithLabelValues("accepted").Inc()
	if change.keeper != nil {
		change.keeper.unwritten--
	}
	return true
}

// writeCondition writes the condition ScaleDownOrdered of a policy if it is another one, and reports whether the API
// server has accepted it.
func (c *Controller) writeCondition(
	ctx context.Context, p *v1alpha1.ZoneSpreadPolicy, condition metav1.Condition,
) bool {
	condition.Type, condition.Message = v1alpha1.ConditionScaleDownOrdered, crd.Shortened(condition.Message)
	condition.ObservedGeneration, condition.LastTransitionTime = p.Generation, metav1.NewTime(c.now()).Rfc3339Copy()
	changed := p.DeepCopy()
	if !meta.SetStatusCondition(&changed.Status.Conditions, condition) {
		return true
	}
	err := client.IgnoreNotFound(c.shared.Client.Status().Patch(
		ctx, changed, client.MergeFromWithOptions(p, client.MergeFromWithOptimisticLock{}),
	))
	if err != nil && !apierrors.IsConflict(err) {
		klog.FromContext(ctx).Error(err, "Cannot write the status", "zonespreadpolicy", klog.KObj(p))
	}
	return err == nil
}
