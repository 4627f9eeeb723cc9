package integration

import (
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// TestReservationAfterARestart: a new scheduler holds the slots on the nodes on which the old one did, though others would be
// better by now, before it places any pod.
func TestReservationAfterARestart(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1", "a2", "a3")
	r := w.reserve("shop", inZones(2, "a"))
	first := w.startScheduler()
	w.waitReady(r, 2)
	before := slotsByNode(&w.reservation(r).Status)
	// On the other nodes the best fit would now be another.
	for _, node := range []string{"a1", "a2", "a3"} {
		if before[node] == 0 {
			w.waitBound(w.create(newPod("on-"+node, "2", onNode(node)))...)
		}
	}
	w.waitBound(w.create(owners(1, "web", "1")...)...)
	w.stopScheduler(first)
	batch := w.create(newPods(10, "batch", "1")...)

	w.startScheduler()
	w.waitBoundOf(12-2-5, "shop", batch) // 12 cpus, two pods of 2, the owner's 1, two slots
	w.waitReady(r, 2)
	require.Equal(t, before, slotsByNode(&w.reservation(r).Status))
	w.waitBound(w.create(owners(2, "next", "1")...)...)
}

// TestReservationConsumersSurvive: owners that use slots use the same ones, and no others, after a new scheduler has taken over and after their
// node was registered again: a Guarantee is not held twice, and the limit of owners that may run in slots only stays one.
func TestReservationConsumersSurvive(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*v1alpha1.ZoneReservationSpec){
		"Guarantee": ofMode(guarantee),
		"Required":  func(s *v1alpha1.ZoneReservationSpec) { s.OwnerPolicy = v1alpha1.OwnerRequired },
	} {
		t.Run(name, func(t *testing.T) {
			w := newReservationWorld(t)
			w.addNodes("8", "a1")
			r := w.reserve("shop", inZones(4, "a"), edit)
			first := w.startScheduler()
			w.waitSlots(r, 4, 0)
			w.waitBound(w.create(owners(2, "web", "1")...)...)
			w.stopScheduler(first) // at once: the status may lack the last consumer
			w.startScheduler()
			w.waitSlots(r, 4, 2)

			node := &v1.Node{}
			require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKey{Name: "a1"}, node))
			require.NoError(t, w.cp.client.Delete(w.ctx, node))
			w.waitReservation(r, "the node is gone", func(s *v1alpha1.ZoneReservationStatus) bool { return s.Slots.Held == 0 })
			w.addNodes("8", "a1")
			w.waitSlots(r, 4, 2)

			if name == "Guarantee" {
				// Of eight CPUs two are the owners', two are held, and four are for all.
				w.waitBoundOf(4, "shop", w.create(newPods(5, "batch", "1")...))
			}
			w.waitBoundOf(2, "", w.create(owners(3, "next", "1")...))
			w.waitSlots(r, 4, 4)
		})
	}
}

// TestReservationFailover: the leader is killed while pods wait that it kept out. The next one keeps them out as well, holds
// the slots where they were, and lets the owners in.
func TestReservationFailover(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1", "a2", "b1", "b2")
	r := w.reserve("shop", inZones(2, "ab"))
	mine := byScheduler("zonewise-scheduler")
	first := w.lead(1)
	second := w.startReplica(2, 500)
	w.waitReady(r, 4)
	before := slotsByNode(&w.reservation(r).Status)
	batch := w.create(newPods(14, "batch", "1", mine)...)
	out := w.waitBoundOf(12, "shop", batch)
	w.eventually("the standby is ready", func() (bool, string) {
		code, body, err := second.get(w.ctx, "/readyz")
		return code == http.StatusOK, fmt.Sprint(code, body, err)
	})

	w.takeOver(first)
	w.waitBound(w.create(owners(3, "web", "1", mine)...)...)
	w.requirePending(out...)
	w.waitReservation(r, "as before", func(s *v1alpha1.ZoneReservationStatus) bool {
		return s.Slots.Held == 4 && s.Slots.Used == 3 && maps.Equal(slotsByNode(s), before)
	})
	_, metrics, err := second.get(w.ctx, "/metrics")
	require.NoError(t, err)
	require.Equal(t, "0", metric(metrics, "zonewise_reservecache_drift_nodes"))

	w.deleteReservation(r)
	w.eventually("one cpu is free now", func() (bool, string) { n := w.boundOf(out); return n == 1, fmt.Sprint(n) })
}

// TestReservationOfALargeCluster: the scheduler looks at a part of the nodes only. In Guarantee mode owners find their one slot
// among hundreds of free nodes. In Headroom mode they find the one free node among hundreds with slots, and a slot only after
// that.
func TestReservationOfALargeCluster(t *testing.T) {
	const nodes = 240
	sampling := edited(func(c *configv1.KubeSchedulerConfiguration) {
		c.PercentageOfNodesToScore = ptr.To[int32](1) // the framework looks for 100 feasible nodes at the least
	})
	for _, mode := range []v1alpha1.ReservationMode{guarantee, headroom} {
		t.Run(string(mode), func(t *testing.T) {
			w := newReservationWorld(t)
			for i := range nodes {
				w.addNodes("1", fmt.Sprintf("a%03d", i))
			}
			slots := int32(1)
			if mode == headroom {
				slots = nodes - 1
			}
			r := w.reserve("shop", inZones(slots, "a"), ofMode(mode))
			w.startScheduler(sampling)
			w.waitReady(r, int64(slots))
			held := slotsByNode(&w.reservation(r).Status)
			first := w.create(owners(1, "web", "1")...)
			w.waitBound(first...)
			if mode == guarantee {
				require.Contains(t, held, w.pod(first[0]).Spec.NodeName)
				w.waitSlots(r, 1, 1)
				return
			}
			w.waitSlots(r, nodes-1, 0)
			second := w.create(owners(1, "next", "1")...)
			w.waitBound(second...)
			require.Contains(t, held, w.pod(second[0]).Spec.NodeName)
			w.waitSlots(r, nodes-1, 1)
			var out []*v1.Pod
			w.waitUnschedulable("shop", append(out, w.create(newPod("other", "1"))...)...)
		})
	}
}
