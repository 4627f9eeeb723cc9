package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"zonewise.dev/apis/v1alpha1"
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
		node.Status.Conditions, node.Spec.Taints = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}, nil
		if !ready {
			node.Status.Conditions[0].Status = v1.ConditionUnknown
			node.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoSchedule}}
		}
	}
}

// TestSlotsMoveWithTheirNode: slots leave a node that they can not stay on for another one of the zone, and do not come
// back for nothing. A node that is too small keeps those that it has room for.
func TestSlotsMoveWithTheirNode(t *testing.T) {
	for name, tt := range map[string]struct {
		change, undo func(*v1.Node)
		stay         int64
	}{
		"cordoned": {func(n *v1.Node) { n.Spec.Unschedulable = true }, func(n *v1.Node) { n.Spec.Unschedulable = false }, 0},
		"tainted": {
			func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}} },
			func(n *v1.Node) { n.Spec.Taints = nil }, 0,
		},
		"not ready": {func(n *v1.Node) { setReady(false)(n); n.Spec.Taints = nil }, setReady(true), 0},
		"too small": {setCPU("3"), setCPU("4"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
				for i := range 4 {
					c.pod(fmt.Sprintf("batch-%d", i), "batch", "2", nil)
				}
				c.soonEqual(2, func() any { return c.zonesOfApp("batch")["a"] })
				require.Equal(t, want, c.slotsOn("r"))
			})
		})
	}
}

// TestReservationsBindAllProfiles: a reservation keeps the pods of every profile out, and lets owners of every profile
// in.
func TestReservationsBindAllProfiles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := startHoldCluster(t)
		c.smallNode("a1", "a", "2", nil)
		c.reservations.apply(reservation("r", "web", 2, nil))
		c.requireSlots("r", 2, 0)
		byBatch := func(p *v1.Pod) { p.Spec.SchedulerName = "batch" }
		c.pod("batch-mine", "batch", "1", nil)
		c.pod("batch-theirs", "batch", "1", byBatch)
		for _, name := range []string{"batch-mine", "batch-theirs"} {
			require.Contains(t, c.refused(name), "held for ZoneReservation r")
		}
		c.pod("web-mine", "web", "1", nil)
		c.pod("web-theirs", "web", "1", byBatch)
		for _, name := range []string{"web-mine", "web-theirs"} {
			require.Equal(t, "a1", c.waitNode(name))
		}
		c.requireSlots("r", 0, 0)
	})
}
