package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

// hardSpread spreads the pods of an app over the zones that they can run in.
func hardSpread(app string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, NodeTaintsPolicy: ptr.To(v1.NodeInclusionPolicyHonor),
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		}}
	}
}

// surge creates a pod of the service's next revision, and waits until it has a node.
func (c *cluster) surge(name string) {
	c.t.Helper()
	c.pod(name, "web", "1", func(p *v1.Pod) {
		hardSpread("web")(p)
		// As pod-template-hash does for Deployments, so that a surge is not held up by the old revision.
		p.Labels["revision"] = "2"
		p.Spec.TopologySpreadConstraints[0].MatchLabelKeys = []string{"revision"}
	})
	c.waitNode(name)
}

// TestTheOldestIsFilledFirst: freed room goes to reservations by their age, and to no pod that waits.
func TestTheOldestIsFilledFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "3", nil)
		for i := range 3 {
			c.pod(fmt.Sprintf("old-%d", i), "batch", "1", nil)
			c.waitNode(fmt.Sprintf("old-%d", i))
		}
		for i, name := range []string{"younger", "older"} {
			c.reservations.apply(reservation(name, name, 1, func(r *v1alpha1.ZoneReservation) {
				r.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Duration(i) * time.Hour).Truncate(time.Second))
			}))
			// Room that becomes free before the scheduler knows of the reservation is anybody's.
			c.requireCondition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		}
		c.pod("waiting", "batch", "1", nil)
		c.refused("waiting")
		c.delete("old-0")
		c.requireSlots("older", 1, 0)
		c.requireSlots("younger", 0, 0)
		c.delete("old-1")
		c.requireSlots("younger", 1, 0)
		require.Empty(t, c.nodeOf("waiting"))
		c.delete("old-2")
		c.waitNode("waiting")
	})
}
