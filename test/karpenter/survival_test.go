package karpenter

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// TestKarpenterAndSurvival: with buy, Karpenter buys the room that a ZoneSurvival is to hold, and no more because that
// room is used when a zone is lost.
func TestKarpenterAndSurvival(t *testing.T) {
	c := start(t)
	t.Run("not bought", func(t *testing.T) { c.in(t).testRoomNotBought() })
	t.Run("bought", func(t *testing.T) { c.in(t).testRoomBought() })
}

// protect has a service of four and other pods fill both nodes, and asks that the service survives the loss of any
// zone.
func (c *cluster) protect(buy *v1alpha1.Buy) {
	c.t.Helper()
	for _, zone := range []string{"a", "b"} {
		c.deploy("batch-"+zone, 1, "2", inZone(zone))
		c.waitRunning("batch-"+zone, zone+" 1")
	}
	c.deploy("web", 4, "1", build.Spread("web", 1, corev1.DoNotSchedule), func(p *corev1.Pod) {
		p.Spec.TopologySpreadConstraints[0].NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor)
	})
	c.waitRunning("web", "a 2, b 2")
	c.Make(c.t, &v1alpha1.ZoneSurvival{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Spec: v1alpha1.ZoneSurvivalSpec{
		Workloads: []v1alpha1.SurvivalWorkload{{Namespace: namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
		Survive:   v1alpha1.SurvivalLosses{Zones: ptr.To[int32](1)}, Hold: true, Buy: buy,
	}})
}

// waitSurvives waits for what the ZoneSurvival says of the room and of the loss of a zone.
func (c *cluster) waitSurvives(held string, survives metav1.ConditionStatus) {
	c.t.Helper()
	s := &v1alpha1.ZoneSurvival{}
	c.until(held, func() (bool, error) {
		err := c.Get(c.t.Context(), client.ObjectKey{Name: "services"}, s)
		condition := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionHeld)
		return condition != nil && condition.Reason == held && meta.IsStatusConditionPresentAndEqual(s.Status.Conditions, v1alpha1.ConditionSurvives, survives), err
	})
}

func (c *cluster) testRoomNotBought() {
	c.protect(nil)
	c.waitSurvives(v1alpha1.ReasonRoomMissing, metav1.ConditionFalse)
	c.waitLooked()
	require.Empty(c.t, c.bought())
}

func (c *cluster) testRoomBought() {
	c.protect(&v1alpha1.Buy{Namespace: "capacity-buffers", Max: 10})
	c.waitSurvives(v1alpha1.ReasonRoomHeld, metav1.ConditionTrue)
	nodes := c.boughtNodes()
	require.NotEmpty(c.t, nodes)
	for i := range nodes {
		c.waitStays(&nodes[i], "Unconsolidatable", "has buffer pods")
	}
	c.waitSurvives(v1alpha1.ReasonRoomHeld, metav1.ConditionTrue)
	c.testLostZone()
}

// testLostZone: the replicas of a zone that is lost take the room that is held for them. Neither they nor the buffers,
// of which they take up what they use, bring a node in another zone. When the zone is back, what was bought before is
// enough.
func (c *cluster) testLostZone() {
	require.Equal(c.t, "a 1, b 1", c.bought())
	lost := c.nodesIn("a")
	for _, node := range lost { // the taint is the node lifecycle controller's, which does not run
		c.Kubectl(c.t, "cordon", node)
		c.Kubectl(c.t, "taint", "node", node, corev1.TaintNodeUnschedulable+":NoSchedule")
	}
	c.Kubectl(c.t, "delete", "pods", "--namespace="+namespace, "--field-selector=spec.nodeName=node-a", "--selector=app=web")
	c.waitRunning("web", "b 4")
	c.waitLooked()
	require.Regexp(c.t, "^a [12], b 1$", c.bought()) // in zone a for what was asked for there before
	for _, node := range lost {
		c.Kubectl(c.t, "taint", "node", node, corev1.TaintNodeUnschedulable+"-")
		c.Kubectl(c.t, "uncordon", node)
	}
	c.waitSurvives(v1alpha1.ReasonRoomHeld, metav1.ConditionTrue)
	c.waitBought("a 1, b 1")
}

// nodesIn are the names of the nodes of a zone.
func (c *cluster) nodesIn(zone string) []string {
	c.t.Helper()
	var out []string
	for name, in := range c.nodes() {
		if in == zone {
			out = append(out, name)
		}
	}
	return out
}
