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

// TestZoneFailover: a service of 30 over three zones has headroom of five in each; batch pods fill all else. A rolling
// update leaves the headroom as it was. When a zone dies, the ten replicas that it had run in the others, and nobody is
// evicted. Without the reservation they wait.
func TestZoneFailover(t *testing.T) {
	for name, reserved := range map[string]bool{"with a reservation": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := startHoldCluster(t)
				for _, zone := range []string{"a", "b", "c"} {
					for i := range 4 {
						c.smallNode(fmt.Sprintf("%s%d", zone, i), zone, "8", nil)
					}
				}
				for i := range 30 {
					c.pod(fmt.Sprintf("web-%d", i), "web", "1", hardSpread("web"))
				}
				balanced := map[string]int{"a": 10, "b": 10, "c": 10}
				c.soonEqual(balanced, func() any { return c.zonesOfApp("web") })
				if reserved {
					c.reservations.apply(reservation("shop-failover", "web", 0, func(r *v1alpha1.ZoneReservation) {
						r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "a", Slots: 5}, {Name: "b", Slots: 5}, {Name: "c", Slots: 5}}
					}))
					c.requireSlots("shop-failover", 15, 0)
				}
				// 96 CPUs, 30 of which the service has and 15 are held.
				batch := 66
				if reserved {
					batch -= 15
				}
				for i := range batch + 3 {
					c.pod(fmt.Sprintf("batch-%d", i), "batch", "1", nil)
				}
				c.soonEqual(3, func() any { return c.zonesOfApp("batch")[""] })

				if reserved {
					c.rollOver(30)
					c.soonEqual(balanced, func() any { return c.zonesOfApp("web") })
					c.soonEqual(int64(15000), func() any { return c.heldCPU() })
					c.requireSlots("shop-failover", 15, 0)
					require.Equal(t, 3, c.zonesOfApp("batch")[""], "batch pods got nothing of it")
				}

				lost := c.loseZone("c", "web")
				require.Len(t, lost, 10)
				for i := range lost {
					c.pod(fmt.Sprintf("again-%d", i), "web", "1", hardSpread("web"))
				}
				if !reserved {
					for i := range lost {
						c.refused(fmt.Sprintf("again-%d", i))
					}
					require.Equal(t, map[string]int{"a": 10, "b": 10, "": 10}, c.zonesOfApp("web"))
					return
				}
				c.soonEqual(map[string]int{"a": 15, "b": 15}, func() any { return c.zonesOfApp("web") })
				left := c.zonesOfApp("batch")
				require.Equal(t, batch+3, left["a"]+left["b"]+left["c"]+left[""], "nobody is evicted")
				c.requireSlots("shop-failover", 0, 0)
			})
		})
	}
}

// rollOver replaces the pods of the service one by one, each new one before an old one goes.
func (c *cluster) rollOver(n int) {
	c.t.Helper()
	for i := range n {
		c.surge(fmt.Sprintf("fresh-%d", i))
		c.delete(fmt.Sprintf("web-%d", i))
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

// loseZone taints all nodes of a zone and deletes the pods of an app there, as the node lifecycle controller would.
func (c *cluster) loseZone(zone, app string) []string {
	c.t.Helper()
	nodes, err := c.client.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{LabelSelector: v1.LabelTopologyZone + "=" + zone})
	require.NoError(c.t, err)
	for i := range nodes.Items {
		c.editNode(nodes.Items[i].Name, func(n *v1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute})
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
		})
	}
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(c.t, err)
	var lost []string
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Spec.NodeName != "" && p.Spec.NodeName[:1] == zone {
			c.delete(p.Name)
			lost = append(lost, p.Name)
		}
	}
	return lost
}

// heldCPU is how much CPU is held on all nodes together.
func (c *cluster) heldCPU() (sum int64) {
	for _, held := range c.shared.Held() {
		sum += held.MilliCPU
	}
	return sum
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
