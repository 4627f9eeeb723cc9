package framework

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"
)

// waiting counts the pods of an app without a node.
func (c *cluster) waiting(app string) int { return c.zonesOfApp(app)[""] }

// TestOwnersFindTheirSlotsBesideASickNode: a free node on which pods of the service cannot be bound does not make its
// slots unreachable.
func TestOwnersFindTheirSlotsBesideASickNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "2", nil)
		c.reservations.apply(reservation("r", "web", 1, nil))
		c.requireSlots("r", 1, 0)
		c.pod("batch-0", "batch", "1", nil)
		c.waitNode("batch-0")
		c.smallNode("n2", "b", "1", nil)
		c.quiet()
		sick := true
		c.mishap.set(func(m *mishap) {
			m.preBind = func(_ context.Context, pod string) *fwk.Status {
				if p, ok := c.shared.Ledger().GetPod(c.getPod(pod).UID); sick && ok && p.Node == "n2" {
					return fwk.NewStatus(fwk.Error, "the volume cannot be provisioned there")
				}
				return nil
			}
		})
		c.pod("web-0", "web", "1", nil)
		c.eventually("the owner runs in its slot", func() bool { return c.nodeOf("web-0") == "n1" })
	})
}

// TestPodsOfOtherSchedulers on the nodes take room that ReserveCache cannot keep from them, and leave it to the
// reservation.
func TestPodsOfOtherSchedulers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "4", nil)
		c.reservations.apply(reservation("r", "web", 3, nil))
		c.requireSlots("r", 3, 0)
		c.pod("foreign", "batch", "2", func(p *v1.Pod) { p.Spec.SchedulerName = "another"; p.Spec.NodeName = "n1" })
		c.requireSlots("r", 2, 0)
		c.pod("late", "batch", "1", nil)
		c.refused("late")
		c.delete("foreign")
		c.requireSlots("r", 3, 0)
		c.waitNode("late")
	})
}

// TestARenamedNode: slots follow the room, whatever its node is called.
func TestARenamedNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "2", nil)
		c.reservations.apply(reservation("r", "web", 2, nil))
		c.requireSlotsOn("r", map[string]int64{"n1": 2})
		c.pod("late", "batch", "1", nil)
		c.refused("late")
		c.deleteNode("n1")
		c.smallNode("n2", "a", "2", nil)
		c.requireSlotsOn("r", map[string]int64{"n2": 2})
		c.pass(soonest)
		require.Empty(t, c.nodeOf("late"))
	})
}

// TestReturnedZone: what a reservation holds in a zone that was lost is held again before other pods take the room. The
// node controller takes two taints off a node that is back, and pods tolerate one of them: DefaultTolerationSeconds
// lets them stay for a while.
func TestReturnedZone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Given: a node is lost with what is held there, and other pods wait for room.
		c := startHoldCluster(t)
		c.smallNode("n1", "a", "4", nil)
		c.reservations.apply(reservation("r", "web", 3, nil))
		c.requireSlots("r", 3, 0)
		setReady := func(status v1.ConditionStatus) func(*v1.Node) {
			return func(n *v1.Node) { n.Status.Conditions[0].Status = status }
		}
		noSchedule := v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}
		noExecute := v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}
		c.editNode("n1", setReady(v1.ConditionUnknown))
		c.editNode("n1", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{noSchedule, noExecute} })
		c.requireSlots("r", 0, 0)
		for i := range 4 {
			c.pod(fmt.Sprint("batch-", i), "batch", "1", func(p *v1.Pod) {
				p.Spec.Tolerations = []v1.Toleration{{
					Key: noExecute.Key, Operator: v1.TolerationOpExists, Effect: noExecute.Effect, TolerationSeconds: ptr.To[int64](300),
				}}
			})
		}
		c.soonEqual(4, func() any { return c.waiting("batch") })
		// When: it comes back.
		c.editNode("n1", setReady(v1.ConditionTrue))
		c.editNode("n1", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{noExecute} })
		c.soonEqual(3, func() any { return c.waiting("batch") })
		c.editNode("n1", func(n *v1.Node) { n.Spec.Taints = nil })
		// Then: others have what is left.
		c.requireSlots("r", 3, 0)
		c.pass(soonest)
		require.Equal(t, 3, c.waiting("batch"))
	})
}
