package framework

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// reserve holds slots of one CPU each for an app.
func (c *cluster) reserve(name, app string, slots int32, change func(s *v1alpha1.ZoneReservation)) {
	c.t.Helper()
	c.reservations.apply(reservation(name, app, slots, change))
	c.requireSlots(name, int64(slots), 0)
}

// TestGangUsesItsReservation: in a cluster that is full otherwise, the proposal finds the slots that are held for the
// members, no more of them than there are, and none for a gang of others. All members go into them together.
func TestGangUsesItsReservation(t *testing.T) {
	kinds := maps.Clone(reservationKinds)
	kinds["one slot on each node"] = func(r *v1alpha1.ZoneReservation) { r.Spec.SlotsPerNode = ptr.To[int32](1) }
	for name, change := range kinds {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newGangCluster(t, 2, 2, 2, 2)
				c.profile = allPlugins
				c.start(withArgs(slowBackoff))
				c.reserve("r", "train", 4, change)
				c.requireBound(c.createPlain("other", 4)...)

				strangers := c.createGang("strangers", 4)
				c.requireEvent("PodGroup strangers GangRolledBack", "needs 4, at most 0 fit: 4 nodes")
				large := c.createGang("large", 5, labelled("app", "train"))
				c.requireEvent("PodGroup large GangRolledBack", "needs 5, at most 4 fit")
				c.requireUnbound(append(large, strangers...)...)
				for _, pod := range append(large, strangers...) {
					require.Zero(t, c.mishap.times(pod), "%s takes nothing that its gang cannot use", pod)
				}

				c.requireBound(c.createGang("g", 4, labelled("app", "train"))...)
				require.Zero(t, c.recorder.count("PodGroup g GangRolledBack", ""), "it is proposed and gathered at once")
				if name == "guarantee" || name == "required" {
					c.requireSlots("r", 4, 4)
				} else {
					c.requireSlots("r", 0, 0)
				}
				c.requireUnbound(append(large, strangers...)...)
			})
		})
	}
}

// TestGangsAreSpreadWhole: each of three gangs is to be within a zone of its choice, and a policy that counts gangs has
// them in three zones, though one zone has room for all and is the one that each would pick.
func TestGangsAreSpreadWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newGangCluster(t)
		c.addZonalNode("a-0", "a", 4)
		c.addZonalNode("a-1", "a", 8)
		for _, zone := range []string{"b", "c"} {
			c.addZonalNode(zone+"-0", zone, 8)
			c.addZonalNode(zone+"-1", zone, 8)
		}
		c.groups.Put(&v1alpha1.ZoneSpreadPolicy{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "train"},
			Spec: v1alpha1.ZoneSpreadPolicySpec{
				Unit: v1alpha1.UnitPodGroup, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"job": "train"}},
			},
		})
		c.profile = allPlugins
		c.start(withArgs(slowBackoff))
		zones := map[string]string{} // of the gangs
		for _, gang := range []string{"one", "two", "three"} {
			c.packed(gang, 4, podgroup.RequiredTopologyAnnotation)
			names := c.createMembers(gang, 4, train)
			c.requireBound(names...)
			for zone, pods := range c.zonesOf(names...) {
				require.Equal(t, 4, pods, "%s is in one zone", gang)
				require.Empty(t, zones[zone], "%s is in a zone of its own", gang)
				zones[zone] = gang
			}
		}
	})
}
