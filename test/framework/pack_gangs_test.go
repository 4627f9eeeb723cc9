package framework

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// newPackCluster makes a cluster with all plugins and a node of so many CPUs in each of the zones a, b and on.
func newPackCluster(t testing.TB, cpus ...int) *cluster {
	t.Helper()
	c := newCluster(t, allPlugins)
	c.maxBackoff = 2
	for i, cpu := range cpus {
		c.addNodes(fmt.Sprint(cpu), string(rune('a'+i))+"1")
	}
	return c
}

// spreadOut has the pod one of the app web, which is spread over zones.
func spreadOut(p *st.PodWrapper) *st.PodWrapper {
	p.Label("app", "web")
	p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, overZones())
	return p
}

// TestLauncherAndWorkers: only one node takes the launcher, and the workers, who come first, leave it.
func TestLauncherAndWorkers(t *testing.T) {
	inBubbles(t, map[string]string{"all plugins": allPlugins, "PermitGate alone": permitGateOnly}, func(t *testing.T, profile string) {
		c := newPackCluster(t, 4, 4, 6)
		c.profile = profile
		c.start(withArgs(slowBackoff))
		workers := c.createGang("g", 8)
		c.groups.set("g", 9)
		c.create(member("g", "launcher", 6))
		c.requireBound(append(workers, "launcher")...)
		require.Equal(t, "c1", c.nodeOf("launcher"))
	})
}

// TestGangIsSpread: members have spread constraints like other pods, and count each other before any of them is bound.
// A zone that is full keeps the gang back as a whole.
func TestGangIsSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newPackCluster(t, 16, 8, 1)
		c.start(withArgs(slowBackoff))
		gang := c.createGang("g", 9, spreadOut)
		c.requireEvent("PodGroup g GangRolledBack", "member g-")
		c.requireUnbound(gang...)
		c.addNodes("2", "c2")
		c.requireBound(gang...)
		require.Equal(t, map[string]int{"a": 3, "b": 3, "c": 3}, c.byZone("g-"))
	})
}

// TestGangKeepsZonePolicies: minZones is asked of the gang as a whole. It holds nothing in the zones that there are
// while it waits for the third.
func TestGangKeepsZonePolicies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newPackCluster(t, 4, 4)
		c.policies.Put(newPolicy(func(s *v1alpha1.ZoneSpreadPolicySpec) { s.MinZones = ptr.To[int32](3) }))
		c.start(withArgs(slowBackoff))
		gang := c.createGang("g", 6, labelled("app", "web"))
		c.requireEvent("PodGroup g GangRolledBack", "")
		c.create(member("", "other-a", 4), member("", "other-b", 4))
		c.requireBound("other-a", "other-b")
		c.requireUnbound(gang...)
		c.addNodes("4", "c1")
		c.delete("other-a", "other-b")
		c.requireBound(gang...)
		require.Equal(t, map[string]int{"a": 2, "b": 2, "c": 2}, c.byZone("g-"))
	})
}

// TestGangAndAffinityOfOthers: the proposal knows nothing of the anti-affinity of pods that are there. Members that the
// filters refuse are tried elsewhere, and where nothing is left the gang is refused with that reason and holds nothing.
func TestGangAndAffinityOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newPackCluster(t, 3, 3, 3, 8) // the first three are the fullest
		c.start(withArgs(slowBackoff))
		for _, node := range []string{"a1", "b1", "c1"} {
			c.create(guard(node, v1.LabelHostname), member("", "beside-"+node).Node(node))
		}
		c.quiet()
		gang := c.createGang("g", 4, train)
		c.requireBound(gang...)
		require.Equal(t, map[string]int{"d": 4}, c.byZone("g-"))

		more := c.createGang("more", 6, train)
		c.soon(func() bool { return c.recorder.count("PodGroup more GangRolledBack", "anti-affinity") > 0 })
		c.requireUnbound(more...)
		require.Empty(t, c.mishap.waiting())
		c.requireRoomFor(4)
	})
}

// TestRoomIsKeptForMembers while another plugin keeps one of them, and given back when the gang cannot go on.
func TestRoomIsKeptForMembers(t *testing.T) {
	inBubbles(t, map[string]bool{"the member goes on": true, "it is deleted": false}, func(t *testing.T, comes bool) {
		c := newPackCluster(t, 2, 2)
		c.start(withArgs(slowBackoff))
		c.mishap.set(func(m *mishap) { m.permit = failing("g-3", fwk.Wait) })
		gang := c.createGang("g", 4)
		c.soon(func() bool { return len(c.mishap.waiting()) == 4 })
		c.create(member("", "other"))
		require.Contains(t, c.refused("other"), "Insufficient cpu")
		c.requireUnbound(gang...)
		if !comes {
			c.delete("g-3") // the quorum is gone
			c.requireBound("other")
			c.requireUnbound(gang[:3]...)
			return
		}
		c.mishap.handle.GetWaitingPod("g-3-uid").Allow(mishapName)
		c.requireBound(gang...)
		c.requireUnbound("other")
		c.addNodes("1", "c1")
		c.requireBound("other")
	})
}

// TestPreemptionOutlivesTheScheduler: the next scheduler waits for the victims of the one before it, and names no
// others.
func TestPreemptionOutlivesTheScheduler(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newPackCluster(t, 2, 2)
		c.start(withArgs(preempting))
		c.server.Graceful.Store(true)
		small := []string{"small-0", "small-1", "small-2", "small-3"}
		for i, name := range small {
			c.bind([]string{"a1", "b1"}[i/2], member("", name).Priority(1).TerminationGracePeriodSeconds(3600))
		}
		c.quiet()
		gang := c.createUrgent(2)
		c.soon(func() bool { return len(c.leaving(small...)) == 2 })
		victims := c.leaving(small...)
		c.restart(withArgs(preempting))
		c.requireUnbound(gang...)
		require.Equal(t, victims, c.leaving(small...))
		c.finish(victims...)
		c.requireBound(gang...)
		require.Empty(t, c.leaving(slices.DeleteFunc(small, func(name string) bool { return slices.Contains(victims, name) })...))
	})
}

// reservationKinds are the ways in which a reservation holds slots of one CPU for its owners.
var reservationKinds = map[string]func(*v1alpha1.ZoneReservation){
	"headroom": func(*v1alpha1.ZoneReservation) {}, "guarantee": guarantee, "required": required,
}

// TestGangOfOwnersPreempts: a gang that owns slots, and needs more room than these, preempts pods of a lower priority
// on the node of its slots, or on another. Where owners run in their slots alone, it waits and evicts no pod. In its
// search PermitGate puts members on copies of nodes, which ReserveCache's Filter then reads.
func TestGangOfOwnersPreempts(t *testing.T) {
	nodes := map[string][]int{"one node": {4}, "another node": {2, 2}} // CPUs; the first node has the slots
	for name, change := range reservationKinds {
		for where, cpus := range nodes {
			runInBubble(t, name+" on "+where, func(t *testing.T) {
				c := newGangCluster(t, cpus[0])
				c.profile = allPlugins
				c.start(withArgs(`{"initialBackoff": "1s", "maxBackoff": "1s"}`))
				c.reserve("r", "train", 2, change)
				for i, cpu := range cpus[1:] {
					c.addNode(fmt.Sprint("node-", i+1), cpu)
				}
				batch := []string{"batch-0", "batch-1"}
				c.create(member("", batch[0]), member("", batch[1]))
				c.requireBound(batch...)

				gang := c.createGang("g", 3, labelled("app", "train"), ranked(100))
				if name == "required" {
					c.pass(3 * time.Minute)
					c.requireUnbound(gang...)
					require.Len(t, c.boundAmong(batch...), 2, "no pod is evicted for a gang that stays without room")
					return
				}
				c.requireBound(gang...)
				require.Len(t, c.boundAmong(batch...), 1, "one member has no slot")
			})
		}
	}
}

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
		runInBubble(t, name, func(t *testing.T) {
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
