package preempt

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func disruptionBudget(namespace, name string, selector map[string]string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: selector}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func labelled(name string, labels map[string]string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
}

// TestBudgetsCoverTheirOwnPods: those of the pod's namespace that select it, and have not been charged for it.
func TestBudgetsCoverTheirOwnPods(t *testing.T) {
	web, job := map[string]string{"app": "web"}, map[string]string{"app": "job"}
	charged := disruptionBudget("shop", "charged", web, 1)
	charged.Status.DisruptedPods = map[string]metav1.Time{"web-0": {}}
	none := disruptionBudget("shop", "none", nil, 0)
	none.Spec.Selector = nil
	b := newBudgets([]*policyv1.PodDisruptionBudget{
		disruptionBudget("shop", "web", web, 1), none, disruptionBudget("other", "web", web, 0), charged,
	})
	require.Len(t, b.covering(labelled("web-0", web)), 1)
	require.Len(t, b.covering(labelled("web-1", web)), 2)
	require.Empty(t, b.covering(labelled("job-0", job)), "a budget without a selector has no pods")

	b = newBudgets([]*policyv1.PodDisruptionBudget{disruptionBudget("shop", "all", nil, 0)})
	require.Len(t, b.covering(labelled("job-0", job)), 1, "an empty selector matches every pod of the namespace, for the API server too")
}

// TestBudgetsAreUsedUp by evictions, which may be taken back.
func TestBudgetsAreUsedUp(t *testing.T) {
	web := map[string]string{"app": "web"}
	covering := newBudgets([]*policyv1.PodDisruptionBudget{disruptionBudget("shop", "web", web, 1)}).covering(labelled("web-0", web))
	used := usage{}
	require.False(t, used.usedUp(covering))
	used.add(covering, 1)
	require.True(t, used.usedUp(covering))
	require.False(t, used.violated(covering))
	used.add(covering, 2)
	require.True(t, used.violated(covering))
	used.add(covering, -3)
	require.False(t, used.usedUp(covering))
}

// BenchmarkCovering finds the budgets of a pod among 500 others of its namespace.
func BenchmarkCovering(b *testing.B) {
	list := []*policyv1.PodDisruptionBudget{disruptionBudget("shop", "web", map[string]string{"app": "web"}, 1)}
	for i := range 500 {
		name := fmt.Sprint("other-", i)
		list = append(list, disruptionBudget("shop", name, map[string]string{"app": name}, 1))
	}
	budgets, pod := newBudgets(list), labelled("web-0", map[string]string{"app": "web"})
	for b.Loop() {
		if len(budgets.covering(pod)) != 1 {
			b.Fatal("not covered")
		}
	}
}
