package framework

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/build"
)

// slotsOn returns how many slots a reservation holds on each node.
func (c *cluster) slotsOn(name string) map[string]int64 {
	slots := map[string]int64{}
	for _, zone := range c.reservations.status(name).Zones {
		for _, node := range zone.Nodes {
			slots[node.Name] += node.Slots
		}
	}
	return slots
}

func (c *cluster) requireSlotsOn(name string, want map[string]int64) {
	c.t.Helper()
	c.soonEqual(want, func() any { return c.slotsOn(name) })
}

// setCPU changes how much CPU a node has.
func setCPU(cpu string) func(*v1.Node) {
	return func(node *v1.Node) {
		node.Status.Allocatable[v1.ResourceCPU] = resource.MustParse(cpu)
		node.Status.Capacity[v1.ResourceCPU] = resource.MustParse(cpu)
	}
}

// setReady makes a node ready, or unreachable as the node lifecycle controller does.
func setReady(ready bool) func(*v1.Node) {
	return func(node *v1.Node) {
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		node.Spec.Taints = nil
		if !ready {
			node.Status.Conditions[0].Status = v1.ConditionUnknown
			node.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}}
		}
	}
}

// TestSlotsMoveWithTheirNode: slots leave a node that they can not stay on for another one of the zone, and do not come
// back for nothing. A node that is too small keeps those that it has room for.
func TestSlotsMoveWithTheirNode(t *testing.T) {
	type test struct {
		change, undo func(*v1.Node)
		stay         int64
	}
	inBubbles(t, map[string]test{
		"cordoned": {func(n *v1.Node) { n.Spec.Unschedulable = true }, func(n *v1.Node) { n.Spec.Unschedulable = false }, 0},
		"tainted": {
			func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}} },
			func(n *v1.Node) { n.Spec.Taints = nil }, 0,
		},
		"not ready": {func(n *v1.Node) { setReady(false)(n); n.Spec.Taints = nil }, setReady(true), 0},
		"too small": {setCPU("3"), setCPU("4"), 1},
	}, func(t *testing.T, tt test) {
		c := startHoldCluster(t)
		c.smallNode("a1", "a", "4", nil)
		c.reservations.apply(reservation("r", "web", 2, func(r *v1alpha1.ZoneReservation) {
			r.Spec.Slot.Requests[v1.ResourceCPU] = *cpus("2")
		}))
		c.requireSlotsOn("r", map[string]int64{"a1": 2})
		c.smallNode("a2", "a", "4", nil)
		c.editNode("a1", tt.change)
		want := map[string]int64{"a2": 2 - tt.stay}
		if tt.stay > 0 {
			want["a1"] = tt.stay
		}
		c.requireSlotsOn("r", want)
		c.requireSlots("r", 2, 0)
		c.editNode("a1", tt.undo)
		c.pass(soonest)
		require.Equal(t, want, c.slotsOn("r"))

		// The room that the slots left is everybody's, and what they took is not.
		c.createPods(build.Pods(4, "batch", "2", build.App("batch"))...)
		c.soonEqual(2, func() any { return c.zonesOfApp("batch")["a"] })
		require.Equal(t, want, c.slotsOn("r"))
	})
}

// arrivals are the ways in which the node c1 of 4 CPUs comes to zone c: what is changed of it at first, and what makes
// it whole. Both are nil for a node that is whole from the beginning.
var arrivals = map[string]struct{ at, then func(*v1.Node) }{
	"whole": {},
	"tainted": {
		func(n *v1.Node) {
			n.Spec.Taints = []v1.Taint{{Key: "karpenter.sh/unregistered", Effect: v1.TaintEffectNoExecute}}
		},
		func(n *v1.Node) { n.Spec.Taints = nil },
	},
	"not ready": {setReady(false), setReady(true)},
	"empty":     {setCPU("0"), setCPU("4")},
	"no zone":   {func(n *v1.Node) { delete(n.Labels, v1.LabelTopologyZone) }, func(n *v1.Node) { n.Labels[v1.LabelTopologyZone] = "c" }},
}

// lackingInC are reservations that want 3 CPUs on a1, where they are, and 3 in zone c, which has no node.
var lackingInC = map[string]func(*v1alpha1.ZoneReservation){
	"zones":  inZonesAAndC,
	"spread": func(r *v1alpha1.ZoneReservation) { r.Spec.Slots = ptr.To[int32](2) },
}

func inZonesAAndC(r *v1alpha1.ZoneReservation) {
	r.Spec.Slots = nil
	r.Spec.Zones = []v1alpha1.ReservationZone{{Name: "a", Slots: 1}, {Name: "c", Slots: 1}}
}

// TestANewNodeIsTheReservations: a node comes to a zone that had none, in which a reservation lacks something and a pod
// waits for a whole node, as when an autoscaler buys one. The pod is tried on the same event that shows the node, and
// does not get it.
func TestANewNodeIsTheReservations(t *testing.T) {
	for arrival, node := range arrivals {
		for lacking, spec := range lackingInC {
			for where, wait := range map[string]func(c *cluster) (release func()){
				"waits": func(c *cluster) func() {
					c.createLarge()
					c.refused("large")
					c.pass(soonest)
					return func() {}
				},
				"in backoff": func(c *cluster) func() {
					c.createLarge()
					c.refused("large")
					return func() {}
				},
				"in the queue": func(c *cluster) func() {
					release := c.holdCycleOf("other")
					c.pod("other", "other", "5", nil)
					c.settle()
					c.createLarge()
					return release
				},
				"in its cycle": func(c *cluster) func() {
					release := c.holdCycleOf("large")
					c.createLarge()
					c.settle()
					return release
				},
			} {
				runInBubble(t, arrival+", "+lacking+", the pod "+where, func(t *testing.T) {
					c := newCluster(t, allPlugins)
					c.maxBackoff = 1
					c.start()
					c.smallNode("a1", "a", "3", setReady(true))
					r := reservation("r", "web", 0, spec)
					r.Spec.Slot.Requests[v1.ResourceCPU] = *cpus("3")
					c.reservations.apply(r)
					c.soonEqual(int64(1), func() any { return c.slotsOn("r")["a1"] })
					add := func() { c.smallNode("c1", "c", "4", node.at) }
					come := add
					if node.then != nil {
						add()
						come = func() { c.editNode("c1", node.then) }
					}
					release := wait(c)
					come()
					release()
					c.requireCondition("r", v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonAllHeld)
					c.pass(soonest)
					require.Empty(t, c.nodeOf("large"))

					c.reservations.delete("r")
					require.Equal(t, "c1", c.waitNode("large"))
				})
			}
		}
	}
}

// createLarge makes a pod that needs a node of zone c as a whole.
func (c *cluster) createLarge() {
	c.t.Helper()
	c.pod("large", "batch", "3950m", build.Selects(v1.LabelTopologyZone, "c"))
}

// holdCycleOf has the next cycle of a pod stand still behind all PreFilters, until release is called.
func (c *cluster) holdCycleOf(name string) (release func()) {
	released := make(chan struct{})
	c.mishap.set(func(m *mishap) {
		m.preFilter = func(pod string) *fwk.Status {
			if pod == name {
				<-released
			}
			return nil
		}
	})
	return func() { close(released) }
}

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
