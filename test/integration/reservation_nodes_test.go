package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// patchNode changes a node's spec.
func (w *world) patchNode(name, patch string) {
	w.t.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(w.t, w.cp.client.Patch(w.ctx, node, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// nodeOf returns the one node that has all slots of a reservation.
func (w *reservationWorld) nodeOf(r *v1alpha1.ZoneReservation) string {
	w.t.Helper()
	slots := slotsByNode(&w.reservation(r).Status)
	require.Len(w.t, slots, 1)
	for node := range slots {
		return node
	}
	return ""
}

// TestReservationMovesWithItsNode: slots leave a node that is cordoned, tainted, not ready, too small or gone for another one of
// the zone, and do not come back for nothing.
func TestReservationMovesWithItsNode(t *testing.T) {
	w := newReservationWorld(t)
	w.overcommits = true // a node that shrinks is overcommitted until the slots have moved
	w.addNodes("4", "a1", "a2")
	r := w.reserve("shop", inZones(2, "a"), slotOf("2"))
	w.startScheduler()
	w.waitReady(r, 2)
	other := map[string]string{"a1": "a2", "a2": "a1"}
	at := w.nodeOf(r) // a node of 4 cpus takes both slots: best fit
	for _, step := range []struct {
		what     string
		do, undo func(node string)
	}{
		{"cordon", func(node string) { w.patchNode(node, `{"spec":{"unschedulable":true}}`) }, func(node string) { w.patchNode(node, `{"spec":{"unschedulable":null}}`) }},
		{
			"taint", func(node string) {
				w.patchNode(node, `{"spec":{"taints":[{"key":"dedicated","value":"other","effect":"NoSchedule"}]}}`)
			},
			func(node string) { w.patchNode(node, `{"spec":{"taints":null}}`) },
		},
		{"not ready", func(node string) { w.strike(node) }, func(node string) { w.heal(node) }},
		{"shrink", func(node string) { w.resizeNode(node, "3") }, func(node string) { w.resizeNode(node, "4") }},
		{"delete", w.deleteNode, func(node string) { w.addNodes("4", node) }},
	} {
		step.do(at)
		if step.what == "shrink" {
			// One slot stays where it was; nothing moves without a need.
			w.waitSlotsOn(r, map[string]int64{at: 1, other[at]: 1})
			w.waitReady(r, 2)
			step.undo(at)
			continue
		}
		w.eventually("the slots have moved: "+step.what, func() (bool, string) {
			slots := slotsByNode(&w.reservation(r).Status)
			return slots[at] == 0 && slots[other[at]] == 2, fmt.Sprint(slots)
		})
		w.waitReady(r, 2)
		step.undo(at)
		at = other[at]
		if step.what == "not ready" {
			// The space that the slots left is everybody's, and what they took is not.
			pods := w.create(newPods(2, "other", "3")...)
			w.waitBoundOf(1, "shop", pods)
			w.deletePod(pods[0])
			w.deletePod(pods[1])
		}
	}
	w.waitReady(r, 2)
}

// TestReservationZoneIsLost: a zone without a usable node. With Shift its slots are held in the other zone until it is back, with
// Keep they wait for it, and the status says so.
func TestReservationZoneIsLost(t *testing.T) {
	t.Parallel()
	for _, policy := range []v1alpha1.ZoneLossPolicy{v1alpha1.ZoneLossShift, v1alpha1.ZoneLossKeep} {
		t.Run(string(policy), func(t *testing.T) {
			w := newReservationWorld(t)
			w.addNodes("4", "a1", "b1")
			r := w.reserve("shop", inZones(2, "ab"), ofMode(guarantee), func(s *v1alpha1.ZoneReservationSpec) { s.OnZoneLoss = policy })
			w.startScheduler()
			w.waitSlotsOn(r, map[string]int64{"a1": 2, "b1": 2})
			w.waitReady(r, 4)

			w.strike("a1")
			var batch []*v1.Pod
			if policy == v1alpha1.ZoneLossShift {
				batch = w.create(newPods(2, "batch", "1")...)
				w.waitSlotsOn(r, map[string]int64{"b1": 4})
				w.waitUnschedulable("shop", batch...)
			} else {
				w.waitSlotsOn(r, map[string]int64{"b1": 2})
				batch = w.create(newPods(3, "batch", "1")...)
				w.waitBoundOf(2, "shop", batch)
				w.waitReservation(r, "a zone is lost", func(s *v1alpha1.ZoneReservationStatus) bool {
					return reservationSays(s, v1alpha1.ConditionReady, v1alpha1.ReasonZoneLost, "zone-a")
				})
			}
			w.waitBound(w.create(owners(2, "web", "1", onNode("b1"))...)...)

			w.heal("a1")
			w.waitBound(batch...)
			w.eventually("the slots are at home again", func() (bool, string) {
				s := w.reservation(r).Status
				unused := map[string]int64{}
				for _, zone := range s.Zones {
					for _, node := range zone.Nodes {
						unused[node.Name] += node.Slots - node.Used
					}
				}
				return unused["a1"] == 2, fmt.Sprintf("%+v", s)
			})
		})
	}
}

// TestReservationBadInput: what the API server can not know. Each case gets a condition, and nothing else is affected.
func TestReservationBadInput(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1", "b1")
	w.startScheduler()
	good := w.reserve("good", inZones(1, "a"))
	w.waitReady(good, 1)

	huge := w.reserve("huge", inZones(1, "b"), slotOf("100"), ownedBy("huge"))
	w.waitReservation(huge, "fits no node", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationSays(s, v1alpha1.ConditionReady, v1alpha1.ReasonFitsNoNode, "cpu")
	})
	nowhere := w.reserve("nowhere", inZones(1, "z"), ownedBy("nowhere"), func(s *v1alpha1.ZoneReservationSpec) { s.OnZoneLoss = v1alpha1.ZoneLossKeep })
	w.waitReservation(nowhere, "unknown zone", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationSays(s, v1alpha1.ConditionAccepted, v1alpha1.ReasonZonesWithoutNodes, "zone-z")
	})
	bad := w.reserve("bad", inZones(1, "a"), func(s *v1alpha1.ZoneReservationSpec) {
		s.Owners[0].PodSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn}}}
	})
	w.waitReservation(bad, "rejected", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionAccepted, metav1.ConditionFalse) &&
			reservationSays(s, v1alpha1.ConditionAccepted, v1alpha1.ReasonInvalid, "spec.owners[0].podSelector") && s.Slots.Held == 0
	})
	// The same owners: the older reservation has them, and the younger says so.
	twin := w.reserve("twin", inZones(1, "b"))
	w.waitReservation(twin, "overlap", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionAccepted, metav1.ConditionTrue) &&
			reservationSays(s, v1alpha1.ConditionAccepted, v1alpha1.ReasonOwnersOverlap, "good") && s.Slots.Held == 1
	})

	w.waitReady(good, 1)
	batch := w.create(newPods(7, "batch", "1")...)
	w.waitBoundOf(6, "", batch)
	w.waitBound(w.create(owners(1, "web", "1")...)...)
	w.waitReservation(good, "its owner is in its slot", func(s *v1alpha1.ZoneReservationStatus) bool { return s.Slots.Used == 1 })
	w.waitSlots(twin, 1, 0)
}

// TestReservationCRDComesLater: without the CustomResourceDefinition pods are placed as ever; once it is there, reservations
// hold; when it is taken away, nothing is held any more.
func TestReservationCRDComesLater(t *testing.T) {
	w := newReservationWorldWithout(t)
	w.installCRD(reservationCRD) // so that there is something to take away, whichever test is first
	w.uninstallCRD(reservationCRD)
	w.addNodes("3", "a1")
	w.startScheduler()
	w.waitBound(w.create(newPod("before", "1"))...)

	w.installCRD(reservationCRD)
	r := w.reserve("shop", inZones(2, "a"))
	w.waitReady(r, 2)
	after := w.create(newPod("after", "1"))
	w.waitUnschedulable("shop", after...)

	w.uninstallCRD(reservationCRD)
	w.waitBound(after...)
}
