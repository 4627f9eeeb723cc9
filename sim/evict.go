package sim

import (
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"zonewise.dev/internal/pods"
)

// This file stands for the API server's and the controllers' part in ending a pod: deletions, evictions and budgets.

// handleDeletion is a deletion by request.
func (s *Sim) handleDeletion(k *kind, key string, grace *int64) error {
	pod, ok := get[*v1.Pod](s.store, key)
	if k != kindFor[*v1.Pod](s.store) || !ok || isEndedPod(pod) || pod.Spec.NodeName == "" {
		s.store.remove(k, key)
		s.noteProgress()
		return nil
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	if grace == nil {
		grace = pod.Spec.TerminationGracePeriodSeconds
	}
	s.countHealthy(pod, -1)
	after := stopTime
	if ptr.Deref(grace, 30) == 0 {
		after = killTime
	}
	now := s.clock.Now()
	if after == stopTime {
		now = now.Truncate(stopTime) // those that end at about the same time end together
	}
	end := metav1.Time{Time: now.Add(after)}
	_, err := changeObject(s.store, key, func(pod *v1.Pod) error {
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &end, ptr.To(int64(after.Seconds()))
		return nil
	})
	s.countFailures(pod)
	then := s.releaseAndReplace
	if s.replacesAtOnce(pod) {
		then = s.releaseClaims
		if made := s.replacement(pod); made != nil && !s.options.Bare {
			s.createReplacement(made, pod)
		}
	}
	s.endPodAt(pod, end.Time, then)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evicted = append(s.evicted, pod)
	s.progressLocked()
	return err
}

// endPodAt removes a terminating pod at that time and then calls then.
func (s *Sim) endPodAt(pod *v1.Pod, at time.Time, then func(pod *v1.Pod)) {
	finished := &alarm{clock: s.clock, fire: func(time.Time) { s.endPod(pod, then) }}
	finished.Reset(s.clock.durationUntil(at))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping.Before(at) {
		s.stopping = at
	}
}

// endPod removes a pod that has ended.
func (s *Sim) endPod(pod *v1.Pod, then func(pod *v1.Pod)) {
	if now, ok := get[*v1.Pod](s.store, keyOf(pod)); !ok || now.UID != pod.UID {
		return
	}
	s.store.remove(kindFor[*v1.Pod](s.store), keyOf(pod))
	then(pod)
	s.noteProgress()
}

// releaseAndReplace handles the end of a pod: its own claims are deleted, and its controller replaces it.
func (s *Sim) releaseAndReplace(pod *v1.Pod) {
	s.releaseClaims(pod)
	if made := s.replacement(pod); made != nil && !s.options.Bare {
		s.createReplacement(made, pod)
	}
}

// Evict asks for the eviction of a pod as a client of the API server does: budgets are kept, and its controller makes
// another pod, which Run schedules. An error is the API server's, after which all is as before.
func (s *Sim) Evict(pod *v1.Pod) error {
	defer s.noteChange()
	return s.handleEviction(
		keyOf(pod), &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}}, false,
	)
}

// handleEviction handles an eviction request as the API server does (EvictionREST.Create), which has to match: whoever
// evicts on the copy's word is refused by the same budgets in the cluster.
func (s *Sim) handleEviction(key string, options *metav1.DeleteOptions, dryRun bool) error {
	k := kindFor[*v1.Pod](s.store)
	pod, ok := get[*v1.Pod](s.store, key)
	if !ok {
		return apierrors.NewNotFound(k.resource, key)
	}
	if options == nil {
		options = &metav1.DeleteOptions{}
	}
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != "" && *p.UID != pod.UID ||
			p.ResourceVersion != nil && *p.ResourceVersion != "" && *p.ResourceVersion != pod.ResourceVersion {
			return conflict(k, pod)
		}
	}
	if pods.Live(pod) && pod.Status.Phase != v1.PodPending {
		if err := s.budgetsAllow(pod); err != nil {
			return err
		}
	}
	if dryRun || len(options.DryRun) > 0 {
		return nil
	}
	grace := options.GracePeriodSeconds
	if grace == nil {
		grace = pod.Spec.TerminationGracePeriodSeconds
	}
	return s.handleDeletion(k, key, grace)
}

// budgetsAllow returns an error unless the pod's budget allows its eviction.
func (s *Sim) budgetsAllow(pod *v1.Pod) error {
	budgets := s.budgetsOf(pod)
	switch len(budgets) {
	case 0:
		return nil
	case 1:
	default:
		return apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget, which the eviction subresource does not support"))
	}
	budget := budgets[0]
	status := &budget.Status
	if !podutil.IsPodReady(pod) {
		if ptr.Deref(budget.Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow {
			return nil
		}
		if status.CurrentHealthy >= status.DesiredHealthy && status.DesiredHealthy > 0 {
			return nil
		}
	}
	if status.ObservedGeneration < budget.Generation || status.DisruptionsAllowed <= 0 {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
			Type: policyv1.DisruptionBudgetCause,
			Message: fmt.Sprintf(
				"The disruption budget %s needs %d healthy pods and has %d currently", budget.Name,
				status.DesiredHealthy, status.CurrentHealthy,
			),
		})
		return err
	}
	return nil
}

// budgetsOf returns the budgets of a pod.
func (s *Sim) budgetsOf(pod *v1.Pod) []*policyv1.PodDisruptionBudget {
	var out []*policyv1.PodDisruptionBudget
	for _, budget := range objectsByIndex[*policyv1.PodDisruptionBudget](s.store, namespaceIndex, pod.Namespace) {
		if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err == nil &&
			selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, budget)
		}
	}
	return out
}

// countHealthy updates the status of budgets when a pod becomes healthy or ends.
func (s *Sim) countHealthy(pod *v1.Pod, by int32) {
	if by < 0 && !podutil.IsPodReady(pod) {
		return
	}
	for _, budget := range s.budgetsOf(pod) {
		_, _ = changeObject(s.store, keyOf(budget), func(b *policyv1.PodDisruptionBudget) error {
			b.Status.CurrentHealthy = max(0, b.Status.CurrentHealthy+by)
			b.Status.DisruptionsAllowed = max(0, b.Status.CurrentHealthy-b.Status.DesiredHealthy)
			return nil
		})
	}
}
