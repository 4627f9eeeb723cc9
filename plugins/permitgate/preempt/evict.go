package preempt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"zonewise.dev/plugins/permitgate/podgroup"
)

func refusal(pods []*v1.Pod, err error) string {
	names := fmt.Sprintf("pod %s", klog.KObj(pods[0]))
	if n := len(pods) - 1; n > 0 {
		names += fmt.Sprintf(" and %d others", n)
	}
	return fmt.Sprintf("%s could not be evicted: %v", names, err)
}

// forAll calls do for pods, several at a time, until the preemption is over or the API server refuses one for good. It
// returns the pods that failed, or only those that were refused for good, and the first error.
func (p *Preemptor) forAll(op *operation, pods []*v1.Pod, do func(pod *v1.Pod) error) (failed []*v1.Pod, first error) {
	var mu sync.Mutex // guards the results
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, pod := range pods {
		group.Go(func() error {
			mu.Lock()
			refused := isPermanent(first)
			mu.Unlock()
			if refused || p.over(op) {
				return nil
			}
			err := do(pod)
			mu.Lock()
			defer mu.Unlock()
			if isPermanent(err) && !isPermanent(first) {
				failed, first = nil, err
			}
			if err != nil && (isPermanent(err) || !isPermanent(first)) {
				failed, first = append(failed, pod), cmp.Or(first, err)
			}
			return nil
		})
	}
	_ = group.Wait() // the results have the errors
	return failed, first
}

// isPermanent reports whether the API server refuses a request and will refuse it again.
func isPermanent(err error) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError &&
		code != http.StatusTooManyRequests && code != http.StatusRequestTimeout
}

// inMemory returns the function that stops a pod that has not been bound yet, or nil.
func (p *Preemptor) inMemory(uid types.UID) func(why string) bool {
	for _, h := range p.Handles() {
		if waiting := h.GetWaitingPod(uid); waiting != nil {
			return func(why string) bool { return waiting.Preempt(p.Plugin, why) }
		}
		if preparing := h.GetPodInPreBind(uid); preparing != nil {
			return preparing.CancelPod
		}
	}
	return nil
}

// checkDeletion asks the API server in a dry run whether it would delete a pod, so that no pod is evicted if another
// victim cannot be. Only a permanent refusal counts.
func (p *Preemptor) checkDeletion(ctx context.Context, pod *v1.Pod) error {
	if p.inMemory(pod.UID) != nil {
		return nil
	}
	err := p.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), DryRun: []string{metav1.DryRunAll},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || !isPermanent(err) {
		return nil
	}
	return err
}

// evict evicts a pod as upstream's preemption does: one that has not been bound yet loses its node in memory, another
// gets the condition DisruptionTarget and is deleted, with its grace period.
func (p *Preemptor) evict(ctx context.Context, op *operation, pod *v1.Pod) error {
	note := "preempted by PodGroup " + op.id.String()
	if end := p.inMemory(pod.UID); end == nil || !end(note) {
		switch err := p.deletePod(ctx, op.id, pod); {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			p.Gone(pod.UID) // or another pod has its name
		case err != nil:
			return err
		}
	}
	p.mu.Lock()
	if v := op.victims[pod.UID]; v != nil {
		v.asked = true
	}
	p.mu.Unlock()
	preemptedPods.Inc()
	klog.FromContext(ctx).V(2).Info("Preempted a pod for a gang", "pod", klog.KObj(pod), "node", pod.Spec.NodeName, "podGroup", op.id)
	p.Event(ctx, op.id, pod, reasonPreempted, note)
	return nil
}

func (p *Preemptor) deletePod(ctx context.Context, id podgroup.ID, pod *v1.Pod) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status": map[string]any{"conditions": []v1.PodCondition{{
			Type: v1.DisruptionTarget, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation,
			Reason:             v1.PodReasonPreemptionByScheduler,
			Message:            pod.Spec.SchedulerName + ": preempting to accommodate the higher priority PodGroup " + id.String(),
			LastTransitionTime: metav1.Time{Time: p.Clock.Now()},
		}}},
	})
	if err != nil {
		return err
	}
	pods := p.Client.CoreV1().Pods(pod.Namespace)
	_, err = pods.Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsConflict(err) { // after a conflict the deletion tells whether another pod has the name
		return err
	}
	return pods.Delete(ctx, pod.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}
