package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// createPackedUrgent creates a gang of a high priority that must be in one zone.
func (c *cluster) createPackedUrgent(size int) (names []string) {
	c.t.Helper()
	c.packed("urgent", int32(size), podgroup.RequiredTopologyAnnotation)
	for i := range size {
		names = append(names, fmt.Sprintf("urgent-%d", i))
		c.create(train(member("urgent", names[i])).Priority(100))
	}
	return names
}

// TestPackedGangPreemptsInTheCheapestDomain, which need not be the smallest.
func TestPackedGangPreemptsInTheCheapestDomain(t *testing.T) {
	low := func(name string) *st.PodWrapper { return member("", name).Priority(1) }
	zones := func(t *testing.T) *cluster {
		t.Helper()
		c := newGangCluster(t)
		for _, node := range []string{"a-0", "a-1", "b-0", "b-1", "b-2"} {
			c.addZonalNode(node, node[:1], 1)
		}
		c.start(withArgs(preempting))
		return c
	}
	t.Run("fewer victims", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := zones(t)
			c.bind("a-0", low("low-a-0"))
			c.bind("a-1", low("low-a-1"))
			c.bind("b-1", low("low-b-1"))
			c.bind("b-2", low("low-b-2"))
			c.quiet()
			names := c.createPackedUrgent(2)
			c.requireBound(names...)
			require.Equal(t, map[string]int{"b": 2}, c.zonesOf(names...))
			c.requireLeft([]string{"low-a-0", "low-a-1"}, nil)
			require.NotEqual(t, c.exists("low-b-1"), c.exists("low-b-2"), "one of the two")
		})
	})
	t.Run("a budget", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := zones(t)
			c.budget("guarded", 0)
			c.bind("a-0", low("low-a-0").Label("app", "guarded"))
			c.bind("b-0", low("low-b-0"))
			c.bind("b-1", low("low-b-1"))
			c.bind("b-2", low("low-b-2"))
			c.quiet()
			names := c.createPackedUrgent(2)
			c.requireBound(names...)
			c.requireLeft([]string{"low-a-0"}, nil)
		})
	})
	t.Run("the filters refuse the smallest", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := zones(t)
			c.bind("a-0", low("low-a-0"), guard("a-0", v1.LabelTopologyZone).Priority(1000))
			c.bind("a-1", low("low-a-1"))
			for i := range 3 {
				c.bind(fmt.Sprintf("b-%d", i), low(fmt.Sprintf("low-b-%d", i)))
			}
			c.quiet()
			names := c.createPackedUrgent(2)
			c.requireBound(names...)
			require.Equal(t, map[string]int{"b": 2}, c.zonesOf(names...))
			c.requireLeft([]string{"low-a-0", "low-a-1"}, nil)
		})
	})
}

// TestPackedMembersAreTriedInTheirDomain, and on no other node of the cluster.
func TestPackedMembersAreTriedInTheirDomain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		for i := range 6 {
			c.addZonalNode(fmt.Sprintf("a-%d", i), "a", 0)
		}
		c.addZonalNode("b-0", "b", 1)
		c.addZonalNode("b-1", "b", 1)
		c.start(withArgs(preempting))
		c.bind("b-0", guard("b-0", v1.LabelTopologyZone))
		c.quiet()
		c.packed("g", 2, podgroup.RequiredTopologyAnnotation)
		c.create(train(member("g", "g-0")), train(member("g", "g-1")))
		c.requireEvent("PodGroup g GangRolledBack", "none of 2 nodes fits")
	})
}
