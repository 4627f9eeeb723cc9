package sim

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestEvictionsAreTheAPIServers: what the copy evicts the API server evicts too, and what it refuses is refused there.
func TestEvictionsAreTheAPIServers(t *testing.T) {
	budget := func(name string, change func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
		b := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, CurrentHealthy: 2, DesiredHealthy: 1},
		}
		if change != nil {
			change(b)
		}
		return b
	}
	none := func(b *policyv1.PodDisruptionBudget) {
		b.Status.DisruptionsAllowed, b.Status.CurrentHealthy, b.Status.DesiredHealthy = 0, 1, 2
	}
	unready := func(p *v1.Pod) { p.Status.Conditions = nil }
	for name, test := range map[string]struct {
		pod     func(*v1.Pod)
		budgets []client.Object
		options *metav1.DeleteOptions
		request metav1.CreateOptions
		code    int32 // 0 for success
		stays   bool
	}{
		"without a budget":  {},
		"within the budget": {budgets: []client.Object{budget("one", nil)}},
		"beyond the budget": {budgets: []client.Object{budget("one", none)}, code: http.StatusTooManyRequests, stays: true},
		"two budgets":       {budgets: []client.Object{budget("one", nil), budget("two", nil)}, code: http.StatusInternalServerError, stays: true},
		"a budget that is not up to date": {
			budgets: []client.Object{budget("one", func(b *policyv1.PodDisruptionBudget) { b.Generation = 1 })}, code: http.StatusTooManyRequests, stays: true,
		},
		"unready, the budget is healthy": {pod: unready, budgets: []client.Object{budget("one", func(b *policyv1.PodDisruptionBudget) {
			b.Status.DisruptionsAllowed, b.Status.CurrentHealthy = 0, 1
		})}},
		"unready, the budget is not healthy": {pod: unready, budgets: []client.Object{budget("one", none)}, code: http.StatusTooManyRequests, stays: true},
		"unready, always allowed": {pod: unready, budgets: []client.Object{budget("one", func(b *policyv1.PodDisruptionBudget) {
			none(b)
			b.Spec.UnhealthyPodEvictionPolicy = ptr.To(policyv1.AlwaysAllow)
		})}},
		"pending":                    {pod: func(p *v1.Pod) { p.Status.Phase = v1.PodPending }, budgets: []client.Object{budget("one", none)}},
		"a dry run by its options":   {options: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, stays: true},
		"a dry run by the request":   {request: metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, stays: true},
		"another pod of that name":   {options: metav1.NewPreconditionDeleteOptions("another"), code: http.StatusConflict, stays: true},
		"the pod that is meant":      {options: metav1.NewPreconditionDeleteOptions("web")},
		"a dry run that is refused":  {budgets: []client.Object{budget("one", none)}, request: metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}, code: http.StatusTooManyRequests, stays: true},
		"a version that has changed": {options: metav1.NewRVDeletionPrecondition("none"), code: http.StatusConflict, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID("web")}, Spec: v1.PodSpec{NodeName: "node"},
				Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
			}
			if test.pod != nil {
				test.pod(pod)
			}
			objects := append([]client.Object{&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}, pod}, test.budgets...)
			s, err := New(t.Context(), objects, Options{Now: time.Unix(1_000_000_000, 0)})
			require.NoError(t, err)
			t.Cleanup(s.Close)
			config := &rest.Config{Host: "http://copy.invalid", Transport: api{s}}
			c, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: api{s}})
			require.NoError(t, err)
			eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, DeleteOptions: test.options}
			err = c.CoreV1().RESTClient().Post().Namespace("shop").Resource("pods").Name("web").SubResource("eviction").
				VersionedParams(&test.request, metav1.ParameterCodec).Body(eviction).Do(t.Context()).Error()
			if test.code == 0 {
				require.NoError(t, err)
			} else {
				var status apierrors.APIStatus
				require.ErrorAs(t, err, &status)
				require.Equal(t, test.code, status.Status().Code, "%v", err)
			}
			left, there := Get[*v1.Pod](s, "shop", "web")
			require.True(t, there, "it terminates")
			require.Equal(t, test.stays, left.DeletionTimestamp == nil)
		})
	}
}
