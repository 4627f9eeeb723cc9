package simulate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"zonewise.dev/sim"
)

// recountBudgets does the disruption controller's work for the budgets that have other pods than before: all pods that
// are there are wanted.
func (p *scenarioRun) recountBudgets(changed []*corev1.Pod) error {
	for _, budget := range sim.List[*policyv1.PodDisruptionBudget](p.sim) {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			continue // the API server takes none such
		}
		matches := func(pod *corev1.Pod) bool {
			return pod.Namespace == budget.Namespace && selector.Matches(labels.Set(pod.Labels))
		}
		if !slices.ContainsFunc(changed, matches) && budget.Status.ExpectedPods > 0 {
			continue
		}
		expected, healthy := 0, int32(0)
		for _, pod := range sim.List[*corev1.Pod](p.sim) {
			if matches(pod) && pod.DeletionTimestamp == nil {
				expected++
				if podutil.IsPodReady(pod) {
					healthy++
				}
			}
		}
		b := budget.DeepCopy()
		b.Status.ExpectedPods, b.Status.CurrentHealthy, b.Status.ObservedGeneration = int32(expected), healthy, b.Generation //nolint:gosec // bounded
		b.Status.DesiredHealthy = desiredHealthy(&b.Spec, expected)
		b.Status.DisruptionsAllowed = max(0, healthy-b.Status.DesiredHealthy)
		if err := p.sim.Put(b); err != nil {
			return err
		}
	}
	return nil
}

// desiredHealthy is upstream's (getExpectedPodCount): percents are rounded up.
func desiredHealthy(spec *policyv1.PodDisruptionBudgetSpec, expected int) int32 {
	switch {
	case spec.MaxUnavailable != nil:
		n, _ := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, expected, true) // the API server takes no other text
		return int32(max(0, expected-n))                                                   //nolint:gosec // bounded
	case spec.MinAvailable != nil:
		n, _ := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, expected, true) // as above
		return int32(n)                                                                  //nolint:gosec // bounded
	}
	return 0
}
