package preempt

import (
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// budgets has what the search has left of PodDisruptionBudgets.
type budgets struct {
	byNamespace map[string][]*budget
	// exhausted counts the budgets that allow no further eviction: while it stays the same, each pod violates as many as before.
	exhausted int
}

// budget is one PodDisruptionBudget.
type budget struct {
	selector labels.Selector
	evicted  map[string]metav1.Time // by pod; the budget has been charged for these
	left     int32
}

func newBudgets(list []*policyv1.PodDisruptionBudget) *budgets {
	b := &budgets{byNamespace: map[string][]*budget{}}
	for _, pdb := range list {
		// An empty selector matches no pod, as for upstream's preemption.
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || selector.Empty() {
			continue
		}
		b.byNamespace[pdb.Namespace] = append(b.byNamespace[pdb.Namespace],
			&budget{selector: selector, evicted: pdb.Status.DisruptedPods, left: pdb.Status.DisruptionsAllowed})
	}
	return b
}

// covering returns the budgets that the eviction of a pod counts against.
func (b *budgets) covering(pod *v1.Pod) (all []*budget) {
	for _, one := range b.byNamespace[pod.Namespace] {
		if _, charged := one.evicted[pod.Name]; !charged && one.selector.Matches(labels.Set(pod.Labels)) {
			all = append(all, one)
		}
	}
	return all
}

// take counts an eviction against budgets.
func (b *budgets) take(covering []*budget) {
	for _, one := range covering {
		if one.left--; one.left == 0 {
			b.exhausted++
		}
	}
}

// violates reports whether one more eviction violates a budget, after some that have not been taken yet.
func violates(covering []*budget, before map[*budget]int32) bool {
	for _, one := range covering {
		if one.left-before[one] <= 0 {
			return true
		}
	}
	return false
}
