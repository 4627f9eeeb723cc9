package framework

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"zonewise.dev/apis/v1alpha1"
)

// TestUnlabelledNodesAreNotBlamed: pods that lack CPU wait for CPU. That some node has no zone makes no difference.
func TestUnlabelledNodesAreNotBlamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Given: two nodes with zones and one without.
		c := newSpreadCluster(t)
		c.addNodes("1", "a1", "b1", "c1")
		c.editNode("c1", func(n *v1.Node) { delete(n.Labels, v1.LabelTopologyZone) })
		c.policies.Put(newPolicy())
		c.start()
		// When: a pod wants more than any of them has.
		c.createPods(newPod("web", "4"))
		c.eventually("it was tried", func() bool { return c.triedTimes("web") > 0 })
		c.pass(time.Minute)
		// Then: the policy is not named as what it waits for.
		satisfied := meta.FindStatusCondition(c.status().Conditions, v1alpha1.ConditionSatisfied)
		require.NotNil(t, satisfied)
		require.Equal(t, v1alpha1.ReasonSatisfied, satisfied.Reason, satisfied.Message)
	})
}
