package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// createPackedNativeGang creates a native gang that must be in one zone. Its pods have the label by which policies
// count gangs, and are those of the app web.
func (c *cluster) createPackedNativeGang(name string, size int) []string {
	c.t.Helper()
	c.createPodGroup(name, int32(size))
	c.packNative(name, podgroup.RequiredTopologyAnnotation)
	return c.createNativeMembers(name, size, labelled("app", "web"), labelled(v1alpha1.PodGroupLabel, name))
}

// TestPoliciesCountNativeGangs by the label, with unit PodGroup: each gang is in one zone, and they are spread over
// zones as wholes. PermitGate proposes the fullest zone for each, which ZoneSpread refuses, until the gang has come to
// one that it may have.
func TestPoliciesCountNativeGangs(t *testing.T) {
	nativeBubble(t, "all plugins", func(t *testing.T) {
		c := newPackCluster(t, 16, 16, 16)
		c.policies.Put(newPolicy(countGangs))
		c.start(withArgs(guarded))
		for i, size := range []int{4, 1, 3, 2, 5, 3} {
			c.requireBound(c.createPackedNativeGang(fmt.Sprint("n", i), size)...)
		}
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, c.gangsByZone())
	})
}

// beforeNativeGroups runs a test with native groups as the pods that wait for room, and with plain pods.
func beforeNativeGroups(t *testing.T, profile string, test func(t *testing.T, c *cluster, wait func(name string))) {
	for _, native := range []bool{false, true} {
		nativeBubble(t, fmt.Sprint("native ", native), func(t *testing.T) {
			c := newCluster(t, profile)
			c.maxBackoff = 1
			c.start()
			test(t, c, func(name string) {
				if native {
					c.nativeGang(name, 1, 1)
				} else {
					c.pod(name+"-0", name, "1", nil)
				}
			})
		})
	}
}

// TestRollingUpdateLeavesTheHeadroom in a full cluster as it was, however many pods wait for the room that old replicas
// leave, and however soon an old one goes.
func TestRollingUpdateLeavesTheHeadroom(t *testing.T) {
	for name, tt := range map[string]struct {
		profile string
		overlap time.Duration // of an old replica and the one that replaces it
	}{
		"all plugins":        {allPlugins, 20 * time.Second},
		"ReserveCache alone": {reserveCacheOnly, 0},
	} {
		t.Run(name, func(t *testing.T) {
			beforeNativeGroups(t, tt.profile, func(t *testing.T, c *cluster, wait func(string)) {
				c.smallNode("a1", "a", "8", nil)
				c.smallNode("b1", "b", "8", nil)
				for i := range 8 {
					c.pod(fmt.Sprint("web-", i), "web", "1", hardSpread("web"))
					c.waitNode(fmt.Sprint("web-", i))
				}
				c.reservations.apply(reservation("r", "web", 0, func(r *v1alpha1.ZoneReservation) {
					r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}
				}))
				c.requireSlots("r", 4, 0)
				waiting := func() (n int) {
					for _, pod := range c.listPods("") {
						if pod.Labels["app"] != "web" && pod.Spec.NodeName == "" {
							n++
						}
					}
					return n
				}
				for i := range 10 {
					wait(fmt.Sprint("early", i))
				}
				c.soonEqual(6, func() any { return waiting() })
				for i := range 8 {
					c.surge(fmt.Sprint("fresh-", i))
					c.pass(tt.overlap)
					c.delete(fmt.Sprint("web-", i))
					wait(fmt.Sprint("late", i))
					c.pass(3 * time.Second)
				}
				c.pass(30 * time.Second)
				slots := c.reservations.status("r").Slots
				require.Equal(t, [2]int64{4, 0}, [2]int64{slots.Held, slots.Used})
				require.Equal(t, 14, waiting(), "no waiting pod has got room of the service")
			})
		})
	}
}

// TestNativeOwnersHaveTheirSlotsOnKeptNodes: so it is for a native gang that PermitGate proposes nodes for.
func TestNativeOwnersHaveTheirSlotsOnKeptNodes(t *testing.T) {
	nativeBubble(t, "Guard", func(t *testing.T) {
		c := newGangCluster(t)
		c.profile = allPlugins
		c.start(withArgs(`{"nativeGroups": "Guard", "gangPreemption": false}`))
		c.addZonalNode("node-0", "a", 6)
		c.create(member("", "other", 3))
		c.requireBound("other")
		c.createGang("g", 4)
		c.pass(6 * time.Minute)
		require.Equal(t, 1, c.recorder.count("PodGroup g GangKeepsNodes", ""))
		owners := c.createPackedNativeGang("owners", 2)
		c.requireUnbound(owners...)
		require.Contains(t, c.refused(owners[0]), "kept for another gang")
		c.groups.Put(reservation("later", "web", 2, guarantee))
		require.Less(t, c.requireBound(owners...), time.Minute, "no event tells that there are slots for them now")
	})
}
