package framework

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/apis/v1alpha1"
)

// TestFreedRoomIsAClaimsBeforeAnyPod sees it, also where what waits are native pod groups: a rolling update in a full cluster
// leaves the headroom as it was.
func TestFreedRoomIsAClaimsBeforeAnyPod(t *testing.T) {
	for _, native := range []bool{false, true} {
		nativeBubble(t, fmt.Sprint("native ", native), func(t *testing.T) {
			c := startHoldCluster(t)
			c.smallNode("a1", "a", "8", nil)
			c.smallNode("b1", "b", "8", nil)
			for i := range 8 {
				c.pod(fmt.Sprintf("web-%d", i), "web", "1", hardSpread("web"))
				c.waitNode(fmt.Sprintf("web-%d", i))
			}
			c.reservations.apply(reservation("r", "web", 0, func(r *v1alpha1.ZoneReservation) {
				r.Spec.Slots, r.Spec.Zones = nil, []v1alpha1.ReservationZone{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}
			}))
			c.requireSlots("r", 4, 0)
			arrive := func(name string) {
				if native {
					c.nativeGang(name, 1, 1)
				} else {
					c.pod(name+"-0", name, "1", nil)
				}
			}
			others := func() (waiting int) {
				for _, pod := range c.listPods("") {
					if pod.Labels["app"] != "web" && pod.Spec.NodeName == "" {
						waiting++
					}
				}
				return waiting
			}
			for i := range 10 {
				arrive(fmt.Sprint("batch", i))
			}
			c.soonEqual(6, func() any { return others() })
			for i := range 8 {
				fresh := fmt.Sprintf("fresh-%d", i)
				c.pod(fresh, "web", "1", func(p *v1.Pod) {
					hardSpread("web")(p)
					p.Labels["revision"] = "2"
					p.Spec.TopologySpreadConstraints[0].MatchLabelKeys = []string{"revision"}
				})
				c.waitNode(fresh)
				c.delete(fmt.Sprintf("web-%d", i))
				arrive(fmt.Sprint("later", i))
				c.pass(3 * time.Second)
			}
			c.pass(30 * time.Second)
			require.EqualValues(t, 4, c.reservations.status("r").Slots.Held)
			require.Equal(t, 14, others())
		})
	}
}
