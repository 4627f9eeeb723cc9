package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/clitest"
)

// TestBothForms: what is lost is lost with its nodes deleted, and with them there, which a constraint may count. What
// comes back, and what is bought, is tried in the first form alone.
func TestBothForms(t *testing.T) {
	c := zones("8")
	c.Running("web", "1", clitest.Spread("web"), onEach(3)...)
	c.Running("forever", "1", func(template *corev1.PodTemplateSpec) {
		template.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}, "node-a")
	c.Add(certificate("forever", v1alpha1.SurvivalLoss{Zone: "a", Displaced: 1, Waiting: 1, NodesStay: true}))
	r := run(t, c, &Scenario{Zones: []string{"a"}})
	require.Equal(t, []int{2, 0}, []int{r.Placed, r.Pending})
	require.Equal(t, []int{0, 1, 1}, []int{r.NodesStay.Placed, r.NodesStay.Pending, r.NodesStay.Staying})
	require.Equal(t, []string{FailPending}, r.Failed(DefaultFailures))
	require.True(t, r.Certificates[0].Agrees)
	require.Equal(t, int64(1), r.Certificates[0].WaitingHere)
	require.Contains(t, text(t, r), "  while the lost nodes still exist, 0 find a node, 1 stay Pending, 1 tolerate the taint and stay on dead nodes\n"+
		"    - Deployment shop/web: 0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match pod topology spread constraints")
	require.Contains(t, text(t, r), "agrees: 1 of 1 displaced pods would wait while the lost nodes still exist, 1 here\n")
	require.Nil(t, run(t, c, &Scenario{Zones: []string{"a"}, Return: true}).NodesStay)
	require.Nil(t, run(t, c, &Scenario{Zones: []string{"a"}, Bought: map[string]int{"node-a": 1}}).NodesStay)
}
