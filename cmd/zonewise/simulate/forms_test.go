package simulate

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cmd/zonewise/show"
	"zonewise.dev/test/clitest"
)

// TestBothForms: what is lost is lost with its nodes deleted, and with them there, which a constraint may count. What
// comes back, and what is bought, is tried in the first form alone.
func TestBothForms(t *testing.T) {
	c := zones("8")
	web := c.Deployment("web", 3, "1", "1Gi", func(template *corev1.PodTemplateSpec) {
		template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{clitest.ZoneSpread("web", 1)}
	})
	for _, zone := range []string{"a", "b", "c"} {
		web("node-" + zone)
	}
	forever := c.Deployment("forever", 1, "1", "1Gi", func(template *corev1.PodTemplateSpec) {
		template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	})
	forever("node-a")
	asked := &v1alpha1.ZoneSurvival{
		ObjectMeta: metav1.ObjectMeta{Name: "services"},
		Spec: v1alpha1.ZoneSurvivalSpec{Workloads: []v1alpha1.SurvivalWorkload{
			{Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "forever"}}},
		}},
		Status: v1alpha1.ZoneSurvivalStatus{
			ComputedAt: metav1.NewTime(clitest.Now), Losses: []v1alpha1.SurvivalLoss{{Zone: "a", Displaced: 1, Waiting: 1, NodesStay: true}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionSurvives, Status: metav1.ConditionFalse}},
		},
	}
	c.Add(asked)
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []int{2, 0}, []int{r.Placed, r.Pending})
	require.Equal(t, []int{0, 1, 1}, []int{r.NodesStay.Placed, r.NodesStay.Pending, r.NodesStay.Staying})
	require.Equal(t, []string{FailPending}, r.Failed(DefaultFailures))
	require.True(t, r.Certificates[0].Agrees)
	require.Equal(t, int64(1), r.Certificates[0].WaitingHere)
	var text bytes.Buffer
	require.NoError(t, NewReport([]*Result{r}, DefaultFailures).Text(&text, show.Style{}))
	require.Contains(t, text.String(), "  while the lost nodes still exist, 0 find a node, 1 stay Pending, 1 tolerate the taint and stay on dead nodes\n"+
		"    - Deployment shop/web: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod topology spread constraints")
	require.Contains(t, text.String(), "agrees: 1 of 1 displaced pods would wait while the lost nodes still exist, 1 here\n")
	require.Nil(t, run(t, c, &Scenario{Zones: []string{"a"}, Return: true}).NodesStay)
	require.Nil(t, run(t, c, &Scenario{Zones: []string{"a"}, Bought: map[string]int{"node-a": 1}}).NodesStay)
}
