package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/kubernetes/pkg/features"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

func guarantee(r *v1alpha1.ZoneReservation) { r.Spec.Mode = v1alpha1.ModeGuarantee }

func required(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerRequired }

// loseNode deletes the node of reservation r, and returns what registers it again.
func (c *cluster) loseNode(name string) (comeBack func()) {
	c.t.Helper()
	node, err := c.client.CoreV1().Nodes().Get(c.t.Context(), name, metav1.GetOptions{})
	require.NoError(c.t, err)
	c.deleteNode(name)
	c.requireCondition("r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
	again := node.DeepCopy()
	again.UID = "again"
	return func() { c.add(again) }
}

// TestUsedSlotsSurvive what a scheduler forgets: its memory, and nodes. A Guarantee is not given twice, and the limit
// of those that may run in slots only stays one.
func TestUsedSlotsSurvive(t *testing.T) {
	inBubbles(t, map[string]func(c *cluster){
		"a restart": func(c *cluster) { c.restart() },
		"a failover right after the last binding": func(c *cluster) {
			c.pod("web-1", "web", "1", nil)
			c.waitNode("web-1")
			c.restart() // the status may not say yet that its slot is used
		},
		"the node is registered again": func(c *cluster) { c.loseNode("n1")() },
		"a restart while the node is away": func(c *cluster) {
			comeBack := c.loseNode("n1")
			c.restart()
			comeBack()
		},
	}, func(t *testing.T, happen func(c *cluster)) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "8", nil)
		c.reservations.apply(reservation("r", "web", 3, func(r *v1alpha1.ZoneReservation) { guarantee(r); required(r) }))
		c.requireSlots("r", 3, 0)
		c.pod("web-0", "web", "1", nil)
		c.waitNode("web-0")
		c.requireSlots("r", 3, 1)
		happen(c)
		if c.zonesOfApp("web")["n"] == 1 {
			c.pod("web-1", "web", "1", nil)
		}
		c.waitNode("web-1")
		c.requireSlots("r", 3, 2)
		// Strangers get the five that are free.
		c.createPods(build.Pods(6, "batch", "1", build.App("batch"))...)
		c.soonEqual(1, func() any { return c.zonesOfApp("batch")[""] })
		for i := range 3 {
			c.pod(fmt.Sprintf("web-%d", i+2), "web", "1", nil)
		}
		c.soonEqual(2, func() any { return c.zonesOfApp("web")[""] })
		c.requireSlots("r", 3, 3)
	})
}

// TestSlotsAreThereBeforeTheFirstPod: pods that wait when a scheduler starts get nothing of what many reservations
// hold.
func TestSlotsAreThereBeforeTheFirstPod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const reservations, waiting = 300, 20
		c := startHoldCluster(t)
		for i := range reservations / 10 {
			c.smallNode(fmt.Sprintf("n%d", i), "a", "20", nil)
		}
		for i := range reservations {
			c.reservations.apply(reservation(fmt.Sprintf("r%d", i), fmt.Sprintf("app-%d", i), 2, nil))
		}
		held := func() (slots int64) {
			for i := range reservations {
				slots += c.reservations.status(fmt.Sprintf("r%d", i)).Slots.Held
			}
			return slots
		}
		c.soon(func() bool { return held() == 2*reservations })
		c.stop()
		c.createPods(build.Pods(waiting, "batch", "1", build.App("batch"))...)
		c.start()
		for i := range waiting {
			require.Contains(t, c.refused(fmt.Sprintf("batch-%d", i)), "held for")
		}
		require.EqualValues(t, 2*reservations, held())
	})
}

// TestMembersOfAGangOwnSlots, all of them at once and on the same node, in one cycle of the scheduler's for the whole
// group.
func TestMembersOfAGangOwnSlots(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
	for name, change := range reservationKinds {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				c := startHoldCluster(t)
				c.smallNode("n1", "a", "8", nil)
				c.reservations.apply(reservation("r", "train", 4, change))
				c.requireSlots("r", 4, 0)
				c.createPods(build.Pods(5, "batch", "1", build.App("batch"))...)
				c.soonEqual(1, func() any { return c.zonesOfApp("batch")[""] })
				c.nativeGang("train", 4, 4)
				c.soonEqual(map[string]int{"n": 4}, func() any { return c.zonesOfApp("train") })
				if name == "headroom" {
					c.requireSlots("r", 0, 0)
				} else {
					c.requireSlots("r", 4, 4)
				}
				c.requireSettled()
			})
		})
	}
}

// nativeGang makes a gang that upstream's scheduler admits as a whole, and its pods.
func (c *cluster) nativeGang(name string, minCount int32, pods int) {
	c.t.Helper()
	require.NoError(c.t, createNativeGang(c.t.Context(), c.client, name, minCount))
	for i := range pods {
		c.pod(fmt.Sprintf("%s-%d", name, i), name, "1", func(p *v1.Pod) { p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &name} })
	}
}

// TestOwnersThatMayNowRunAreWoken: a change of a reservation after which its owners may run wakes those that wait.
func TestOwnersThatMayNowRunAreWoken(t *testing.T) {
	required := func(change func(*v1alpha1.ZoneReservation)) *v1alpha1.ZoneReservation {
		return reservation("r", "web", 1, func(r *v1alpha1.ZoneReservation) {
			r.Spec.OwnerPolicy = v1alpha1.OwnerRequired
			r.Spec.Slot.NodeSelector = map[string]string{"pool": "x"}
			change(r)
		})
	}
	unchanged := func(*v1alpha1.ZoneReservation) {}
	inBubbles(t, map[string]func(*reservationAPI){
		"deleted": func(api *reservationAPI) { api.delete("r") },
		"expired": func(api *reservationAPI) {
			api.apply(required(func(r *v1alpha1.ZoneReservation) { r.Spec.TTL = &metav1.Duration{Duration: time.Millisecond} }))
		},
		"of others": func(api *reservationAPI) {
			api.apply(required(func(r *v1alpha1.ZoneReservation) { r.Spec.Owners[0].PodSelector.MatchLabels["app"] = "shop" }))
		},
		"preferred": func(api *reservationAPI) {
			api.apply(required(func(r *v1alpha1.ZoneReservation) { r.Spec.OwnerPolicy = v1alpha1.OwnerPreferred }))
		},
	}, func(t *testing.T, relax func(*reservationAPI)) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "1", func(n *v1.Node) { n.Labels["pool"] = "x" })
		c.smallNode("n2", "a", "1", nil)
		c.reservations.apply(required(unchanged))
		c.requireSlots("r", 1, 0)
		c.pod("first", "web", "1", nil)
		require.Equal(t, "n1", c.waitNode("first"))
		c.pod("second", "web", "1", nil)
		c.refused("second")
		relax(c.reservations)
		require.Equal(t, "n2", c.waitNode("second"))
	})
}

// TestOnePreemptionMakesRoom: the room that it makes is the preemptor's, and not that of a reservation of a higher
// priority which lacks slots. Else the pod would evict on, and never run.
func TestOnePreemptionMakesRoom(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		for i := range 3 {
			c.smallNode(fmt.Sprintf("n%d", i), "a", "4", nil)
			c.pod(fmt.Sprintf("low-%d", i), "batch", "4", nil)
			c.waitNode(fmt.Sprintf("low-%d", i))
		}
		c.reservations.apply(reservation("r", "web", 3, func(r *v1alpha1.ZoneReservation) {
			r.Spec.Slot.Requests[v1.ResourceCPU] = *cpus("4")
			r.Spec.Priority = new(int32)
			*r.Spec.Priority = 1000
		}))
		c.requireCondition("r", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonFilling)
		c.pod("high", "batch", "4", priority(500))
		c.waitNode("high")
		c.quiet()
		require.Len(t, c.listPods(""), 3, "one of four was evicted")
		c.requireSlots("r", 0, 0)
	})
}
