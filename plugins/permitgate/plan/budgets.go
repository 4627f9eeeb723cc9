package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// budgets are PodDisruptionBudgets, found by a label that their selectors ask for.
type budgets struct {
	allowed []int32
	// by holds the budgets of a namespace by a label that the pod must have; those that ask for none are under
	// the empty one.
	by map[string]map[[2]string][]budget
}

// budget is one PodDisruptionBudget.
type budget struct {
	id        int32
	selector  labels.Selector
	disrupted map[string]metav1.Time
}

// newBudgets reads them as the plugin DefaultPreemption does: a budget whose selector is empty or does not parse is
// about no pod.
func newBudgets(list []*policyv1.PodDisruptionBudget) *budgets {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b *policyv1.PodDisruptionBudget) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	b := &budgets{by: map[string]map[[2]string][]budget{}}
	for _, pdb := range list {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || selector.Empty() {
			continue
		}
		if b.by[pdb.Namespace] == nil {
			b.by[pdb.Namespace] = map[[2]string][]budget{}
		}
		pair := requiredPair(selector)
		b.by[pdb.Namespace][pair] = append(b.by[pdb.Namespace][pair],
			budget{id: int32(len(b.allowed)), selector: selector, disrupted: pdb.Status.DisruptedPods}) //nolint:gosec // as many as budgets
		b.allowed = append(b.allowed, pdb.Status.DisruptionsAllowed)
	}
	return b
}

// requiredPair returns a label that every pod has which the selector matches, or nothing.
func requiredPair(selector labels.Selector) [2]string {
	requirements, _ := selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if values := r.Values(); values.Len() == 1 {
				return [2]string{r.Key(), values.List()[0]}
			}
		default:
		}
	}
	return [2]string{}
}

// of returns the budgets that a pod counts against, sorted. A disruption that the API server has noted already
// counts no more.
func (b *budgets) of(pod *v1.Pod) []int32 {
	by := b.by[pod.Namespace]
	if len(by) == 0 || len(pod.Labels) == 0 {
		return nil
	}
	var ids []int32
	match := func(pair [2]string) {
		for i := range by[pair] {
			one := &by[pair][i]
			if _, noted := one.disrupted[pod.Name]; !noted && one.selector.Matches(labels.Set(pod.Labels)) {
				ids = append(ids, one.id)
			}
		}
	}
	match([2]string{})
	for key, value := range pod.Labels {
		match([2]string{key, value})
	}
	slices.Sort(ids)
	return ids
}
