package preempt

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// budget is a PodDisruptionBudget.
type budget struct {
	selector labels.Selector
	charged  map[string]metav1.Time // by pod: the API server has charged the budget for these already
	allowed  int32
}

// budgets has PodDisruptionBudgets by their namespace and one label that they require.
type budgets map[budgetKey][]*budget

// budgetKey has no label for a budget without matchLabels.
type budgetKey struct{ namespace, label, value string }

func newBudgets(list []*policyv1.PodDisruptionBudget) budgets {
	all := budgets{}
	for _, pdb := range list {
		// An empty selector matches every pod, as for the API server; kube-scheduler counts such budgets from
		// Kubernetes 1.38 on. Without a selector a budget has no pods.
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || pdb.Spec.Selector == nil {
			continue
		}
		key := budgetKey{namespace: pdb.Namespace}
		for label, value := range pdb.Spec.Selector.MatchLabels {
			if label > key.label {
				key.label, key.value = label, value
			}
		}
		all[key] = append(all[key], &budget{
			selector: selector, charged: pdb.Status.DisruptedPods, allowed: pdb.Status.DisruptionsAllowed,
		})
	}
	return all
}

// covering returns the budgets that the eviction of a pod counts against.
func (b budgets) covering(pod *v1.Pod) (covering []*budget) {
	if len(b) == 0 {
		return nil
	}
	take := func(key budgetKey) {
		for _, pdb := range b[key] {
			if _, charged := pdb.charged[pod.Name]; !charged && pdb.selector.Matches(labels.Set(pod.Labels)) {
				covering = append(covering, pdb)
			}
		}
	}
	take(budgetKey{namespace: pod.Namespace})
	for label, value := range pod.Labels {
		take(budgetKey{pod.Namespace, label, value})
	}
	return covering
}

// usage counts evictions against budgets.
type usage map[*budget]int32

// add counts an eviction, or takes it back.
func (u usage) add(covering []*budget, evictions int32) {
	for _, pdb := range covering {
		u[pdb] += evictions
	}
}

// usedUp reports whether one of some budgets allows no further eviction.
func (u usage) usedUp(covering []*budget) bool {
	return slices.ContainsFunc(covering, func(pdb *budget) bool { return u[pdb] >= pdb.allowed })
}

// violated reports whether one of some budgets has been violated.
func (u usage) violated(covering []*budget) bool {
	return slices.ContainsFunc(covering, func(pdb *budget) bool { return u[pdb] > max(0, pdb.allowed) })
}
