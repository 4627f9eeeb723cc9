package framework

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// reserve holds slots of one CPU each for an app.
func (c *cluster) reserve(name, app string, slots int32, change func(s *v1alpha1.ZoneReservationSpec)) {
	c.t.Helper()
	r := &v1alpha1.ZoneReservation{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(c.clock.Now())},
		Spec: v1alpha1.ZoneReservationSpec{
			Owners: []v1alpha1.ReservationOwner{{Namespace: "default", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}},
			Slot:   v1alpha1.ReservationSlot{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
			Slots:  &slots,
		},
	}
	change(&r.Spec)
	c.groups.Put(r)
	c.requireSlots(name, int64(slots), 0)
}

// TestGangUsesItsReservation: in a cluster that is full otherwise, the proposal finds the slots that are held for the
// members, no more of them than there are, and none for a gang of others. All members go into them together.
func TestGangUsesItsReservation(t *testing.T) {
	for name, change := range map[string]func(s *v1alpha1.ZoneReservationSpec){
		"headroom":  func(*v1alpha1.ZoneReservationSpec) {},
		"guarantee": func(s *v1alpha1.ZoneReservationSpec) { s.Mode = v1alpha1.ModeGuarantee },
		"required":  func(s *v1alpha1.ZoneReservationSpec) { s.OwnerPolicy = v1alpha1.OwnerRequired },
		"one slot on each node": func(s *v1alpha1.ZoneReservationSpec) {
			s.SlotsPerNode = ptr.To[int32](1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := newGangCluster(t, 2, 2, 2, 2)
				c.profile = allPlugins
				c.start(withArgs(slowBackoff))
				c.reserve("r", "train", 4, change)
				var others []string
				for i := range 4 {
					others = append(others, fmt.Sprintf("other-%d", i))
					c.create(member("", others[i]))
				}
				c.requireBound(others...)

				strangers := c.createGang("strangers", 4)
				c.requireEvent("PodGroup strangers GangRolledBack", "needs 4, at most 0 fit: 4 nodes")
				c.groups.set("large", 5)
				var large []string
				for i := range 5 {
					large = append(large, fmt.Sprintf("large-%d", i))
					c.create(member("large", large[i]).Label("app", "train"))
				}
				c.requireEvent("PodGroup large GangRolledBack", "needs 5, at most 4 fit")
				c.requireUnbound(append(large, strangers...)...)
				for _, pod := range append(large, strangers...) {
					require.Zero(t, c.mishap.times(pod), "%s takes nothing that its gang cannot use", pod)
				}

				c.groups.set("g", 4)
				var gang []string
				for i := range 4 {
					gang = append(gang, fmt.Sprintf("g-%d", i))
					c.create(member("g", gang[i]).Label("app", "train"))
				}
				c.requireBound(gang...)
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
			var names []string
			for i := range 4 {
				names = append(names, fmt.Sprintf("%s-%d", gang, i))
				c.create(train(member(gang, names[i])))
			}
			c.requireBound(names...)
			for zone, pods := range c.zonesOf(names...) {
				require.Equal(t, 4, pods, "%s is in one zone", gang)
				require.Empty(t, zones[zone], "%s is in a zone of its own", gang)
				zones[zone] = gang
			}
		}
	})
}
