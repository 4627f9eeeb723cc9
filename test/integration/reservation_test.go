package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
)

const (
	headroom  = v1alpha1.ModeHeadroom
	guarantee = v1alpha1.ModeGuarantee
)

// TestReservationKeepsOthersOut: pods that the reservation does not name fill everything but the slots, owners get in, and
// those that it kept out go on when it is deleted.
func TestReservationKeepsOthersOut(t *testing.T) {
	t.Parallel()
	for _, mode := range []v1alpha1.ReservationMode{headroom, guarantee} {
		t.Run(string(mode), func(t *testing.T) {
			w := newReservationWorld(t)
			w.addNodes("4", "a1", "b1", "c1")
			r := w.reserve("shop", inZones(1, "abc"), ofMode(mode))
			s := w.startScheduler()
			w.waitReady(r, 3)
			w.waitSlotsOn(r, map[string]int64{"a1": 1, "b1": 1, "c1": 1})

			batch := w.create(newPods(12, "batch", "1")...)
			out := w.waitBoundOf(9, "shop", batch)
			for node, account := range s.ledgerAccount() {
				require.Equal(t, int64(3000), account.MilliCPU, node)
			}
			w.assertInvariants()

			mine := w.create(owners(3, "web", "1")...)
			w.waitBound(mine...)
			require.Equal(t, map[string]int{"zone-a": 1, "zone-b": 1, "zone-c": 1}, w.byZone(labelled("web")))
			w.waitSlots(r, 3, 3)
			// All is full. One owner goes: its slot is for the next owner, not for those that wait.
			w.deletePod(mine[0])
			w.waitSlots(r, 3, 2)
			w.requirePending(out...)
			w.waitBound(w.create(owners(1, "next", "1")...)...)
			w.requirePending(out...)

			w.deleteReservation(r)
			w.deletePod(mine[1])
			w.eventually("one of those that were kept out goes on", func() (bool, string) {
				n := w.boundOf(out)
				return n == 1, fmt.Sprint(n)
			})
		})
	}
}

// TestReservationModes: with free capacity beside the slots an owner leaves the slots alone in Headroom mode and uses one in
// Guarantee mode.
func TestReservationModes(t *testing.T) {
	t.Parallel()
	for mode, used := range map[v1alpha1.ReservationMode]int64{headroom: 0, guarantee: 2} {
		t.Run(string(mode), func(t *testing.T) {
			w := newReservationWorld(t)
			w.addNodes("4", "a1", "b1")
			r := w.reserve("shop", inZones(2, "a"), ofMode(mode))
			w.startScheduler()
			w.waitReady(r, 2)
			w.waitBound(w.create(owners(2, "web", "1")...)...)
			w.waitSlots(r, 2, used)
			// What is left for others is the same in number, and all of it can be had: 8 cpus, less the owners' two, less
			// the slots that nobody uses.
			batch := w.create(newPods(7, "batch", "1")...)
			w.waitBoundOf(6-int(2-used), "", batch)
		})
	}
}

// TestReservationHeadroomIsRefilled: a slot that an owner uses when nothing else fits is replaced by what becomes free next,
// before others get that.
func TestReservationHeadroomIsRefilled(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1")
	r := w.reserve("shop", inZones(1, "a"))
	w.startScheduler()
	w.waitReady(r, 1)
	batch := w.create(newPods(4, "batch", "1")...)
	out := w.waitBoundOf(3, "shop", batch)
	w.waitBound(w.create(owners(1, "web", "1")...)...)
	w.waitSlots(r, 1, 1)
	w.waitReservation(r, "it lacks a slot", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionReady, metav1.ConditionFalse)
	})

	for _, pod := range batch {
		if w.pod(pod).Spec.NodeName != "" {
			w.deletePod(pod)
			break
		}
	}
	w.waitReady(r, 1)
	w.requirePending(out...)
	w.waitBound(w.create(owners(1, "next", "1")...)...)
	w.requirePending(out...)
}

// TestReservationPriority: pods of a higher priority take the space of slots as if it were free; those of the same priority
// are kept out.
func TestReservationPriority(t *testing.T) {
	w := newReservationWorld(t)
	w.overcommits = true
	w.addNodes("2", "a1")
	equal, higher := w.createPriorityClass(100), w.createPriorityClass(101)
	r := w.reserve("shop", inZones(2, "a"), func(s *v1alpha1.ZoneReservationSpec) { s.Priority = ptr.To[int32](100) })
	w.startScheduler()
	w.waitReady(r, 2)
	same := w.create(newPod("same", "1", ofPriority(equal)))
	w.waitUnschedulable("shop", same...)
	w.waitBound(w.create(newPod("above", "1", ofPriority(higher)))...)
	w.waitReservation(r, "it has lost a slot", func(s *v1alpha1.ZoneReservationStatus) bool {
		return !isReady(s)
	})
	w.requirePending(same...)
	// The other slot is still there.
	w.waitBound(w.create(owners(1, "web", "1")...)...)
}

// TestReservationDefaultPriority: without a priority a reservation is protected from pods without a priority class, whatever class the
// cluster gives them; one that says 0 is not, and says so.
func TestReservationDefaultPriority(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("2", "a1")
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "default-"}, Value: 100, GlobalDefault: true}
	require.NoError(t, w.cp.client.Create(w.ctx, class))
	// given waits until the API server gives pods without a class that priority.
	given := func(priority int32) {
		w.eventually("pods get the priority", func() (bool, string) {
			probe := w.create(newPod("probe", "1", byScheduler("example.com/none")))[0]
			w.deletePod(probe)
			return *probe.Spec.Priority == priority, fmt.Sprint(*probe.Spec.Priority)
		})
	}
	t.Cleanup(func() {
		require.NoError(t, w.cp.client.Delete(w.ctx, class))
		given(0)
	})
	r := w.reserve("shop", inZones(2, "a"))
	w.startScheduler()
	w.waitReady(r, 2)
	given(100)
	stranger := newPod("stranger", "1")
	w.create(stranger)
	w.waitUnschedulable("shop", stranger)
	w.waitReservation(r, "protected", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionProtected, metav1.ConditionTrue)
	})
	w.overcommits = true
	w.patchReservation(r, `{"spec":{"priority":0}}`)
	w.waitReservation(r, "not protected", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationSays(s, v1alpha1.ConditionProtected, v1alpha1.ReasonPriorityBelowDefault, class.Name)
	})
	w.waitBound(stranger)
}

// TestReservationExempt: the pods of DaemonSets and those of system priorities go where they always went.
func TestReservationExempt(t *testing.T) {
	w := newReservationWorld(t)
	w.overcommits = true
	w.addNodes("2", "a1", "b1")
	r := w.reserve("shop", inZones(2, "ab"), func(s *v1alpha1.ZoneReservationSpec) { s.Priority = ptr.To[int32](1000000000) })
	w.startScheduler()
	w.waitReady(r, 4)
	other := w.create(newPod("other", "1"))
	w.waitUnschedulable("shop", other...)

	// No controller serves DaemonSets here; the pods of this one are made by hand, as its controller does.
	agent := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labelled("agent")},
		Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labelled("agent")}, Spec: newPod("agent", "100m").Spec},
	}}
	require.NoError(t, w.cp.client.Create(w.ctx, agent))
	t.Cleanup(func() { require.NoError(t, w.cp.client.Delete(w.ctx, agent)) })
	ofAgent := func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(agent, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}
	}
	w.waitBound(w.create(
		newPod("agent-a", "100m", ofAgent, onNode("a1")),
		newPod("agent-b", "100m", ofAgent, onNode("b1")),
		newPod("critical", "100m", ofPriority("system-cluster-critical")),
		newPod("node-critical", "100m", ofPriority("system-node-critical")))...)
	w.requirePending(other...)
}

// TestReservationRequired: owners run inside their slots only, and wait for more of them though there is room beside.
func TestReservationRequired(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1", "b1")
	r := w.reserve("shop", inZones(2, "b"), ofMode(guarantee), func(s *v1alpha1.ZoneReservationSpec) { s.OwnerPolicy = v1alpha1.OwnerRequired })
	w.startScheduler()
	w.waitReady(r, 2)
	pods := w.create(owners(3, "web", "1")...)
	out := w.waitBoundOf(2, "shop", pods)
	require.Equal(t, map[string]int{"zone-b": 2}, w.byZone(labelled("web")))
	w.waitSlots(r, 2, 2)
	w.waitBound(w.create(newPods(6, "other", "1")...)...)
	w.requirePending(out...)

	// A slot that is freed is for the next.
	for _, pod := range pods {
		if w.pod(pod).Spec.NodeName != "" {
			w.deletePod(pod)
			break
		}
	}
	w.waitBound(out...)
	w.waitSlots(r, 2, 2)
}

// TestReservationChanges: what is changed takes effect at once: fewer slots, smaller ones, other owners, another priority.
// What is freed goes to the pods that wait; nothing is evicted.
func TestReservationChanges(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("6", "a1")
	r := w.reserve("shop", inZones(6, "a"))
	w.startScheduler()
	w.waitReady(r, 6)
	batch := w.create(newPods(4, "batch", "1")...)
	w.waitUnschedulable("shop", batch...)

	w.patchReservation(r, `{"spec":{"zones":[{"name":"zone-a","slots":5}]}}`)
	w.waitBoundOf(1, "shop", batch)
	w.waitReady(r, 5)
	w.patchReservation(r, `{"spec":{"slot":{"requests":{"cpu":"800m"}}}}`)
	w.waitBoundOf(2, "shop", batch)
	w.waitReady(r, 5)

	// Other owners: they get in, and the former do not any more.
	w.patchReservation(r, fmt.Sprintf(`{"spec":{"owners":[{"namespace":%q,"podSelector":{"matchLabels":{"batch":"yes"}}}]}}`, w.namespace))
	named := w.create(newPod("named", "800m", withLabel("batch", "yes")))
	w.waitBound(named...)
	w.waitUnschedulable("shop", w.create(owners(1, "no-longer", "800m")...)...)
	w.waitReservation(r, "one used", func(s *v1alpha1.ZoneReservationStatus) bool { return s.Slots.Used == 1 })

	w.deleteReservation(r)
	w.waitBound(batch...)
}

// TestReservationExpires: when its time is over the space is everybody's, at once; nobody is evicted, and more time revives it.
func TestReservationExpires(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("2", "a1")
	r := w.reserve("shop", inZones(2, "a"), func(s *v1alpha1.ZoneReservationSpec) { s.TTL = &metav1.Duration{Duration: time.Hour} })
	w.startScheduler()
	w.waitReady(r, 2)
	w.waitBound(w.create(owners(1, "web", "1")...)...)
	w.waitSlots(r, 2, 1)
	waiting := w.create(newPod("waiting", "1"))
	w.waitUnschedulable("shop", waiting...)
	ttl := time.Since(r.CreationTimestamp.Time).Truncate(time.Second) + 3*time.Second
	w.patchReservation(r, fmt.Sprintf(`{"spec":{"ttl":%q}}`, ttl))
	w.waitBound(waiting...)
	require.Greater(t, time.Since(r.CreationTimestamp.Time), ttl)
	w.waitReservation(r, "expired", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionExpired, metav1.ConditionTrue) && s.Slots.Held == 0
	})

	w.patchReservation(r, `{"spec":{"ttl":"1h"}}`)
	w.deletePod(waiting[0])
	w.waitReservation(r, "revived", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionExpired, metav1.ConditionFalse) && s.Slots.Held > s.Slots.Used
	})
	w.waitUnschedulable("shop", w.create(newPod("late", "1"))...)

	// A time that is over already: the reservation has no effect, and its status says so.
	w.patchReservation(r, `{"spec":{"ttl":"1s"}}`)
	w.waitReservation(r, "expired again", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationIs(s, v1alpha1.ConditionExpired, metav1.ConditionTrue) && s.Slots.Held == 0
	})
	w.eventually("the pod that waits goes on", func() (bool, string) { n := w.boundCount(); return n == 2, fmt.Sprint(n) })
}

// TestReservationProfiles: a reservation keeps the pods of every profile out, and lets owners of every profile in.
func TestReservationProfiles(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("2", "a1", "b1")
	r := w.reserve("shop", inZones(1, "ab"))
	w.startScheduler(withSecondProfile("batch"))
	w.waitReady(r, 2)
	w.waitBoundOf(1, "shop", w.create(newPods(2, "mine", "1", onNode("a1"))...))
	w.waitBoundOf(1, "shop", w.create(newPods(2, "theirs", "1", onNode("b1"), byScheduler("batch"))...))
	w.waitBound(w.create(owners(1, "web", "1", byScheduler("batch"))...)...)
	w.waitBound(w.create(owners(1, "next", "1")...)...)
	w.waitSlots(r, 2, 2)
}

// TestReservationFillsByAge: what becomes free in a full cluster goes to the oldest reservation that lacks slots, piece by
// piece, then to the next, then to the pods that wait.
func TestReservationFillsByAge(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	w.waitBound(w.create(newPods(4, "batch", "1")...)...)
	old := w.reserve("old", inZones(2, "a"))
	w.waitReservation(old, "nothing held yet", func(s *v1alpha1.ZoneReservationStatus) bool {
		return s.Slots.Held == 0 && reservationIs(s, v1alpha1.ConditionReady, metav1.ConditionFalse)
	})
	w.eventually("a second has passed", func() (bool, string) { // creationTimestamps have whole seconds
		age := time.Since(old.CreationTimestamp.Time)
		return age > time.Second, age.String()
	})
	young := w.reserve("young", inZones(1, "a"), slotOf("500m"))
	w.waitReservation(young, "nothing held yet", func(s *v1alpha1.ZoneReservationStatus) bool {
		return s.Slots.Held == 0 && reservationIs(s, v1alpha1.ConditionReady, metav1.ConditionFalse)
	})
	waiting := w.create(newPod("waiting", "500m"))
	w.waitUnschedulable("", waiting...)

	running := w.pods(nil)
	next := func() {
		t.Helper()
		for running[0].Spec.NodeName == "" {
			running = running[1:]
		}
		w.deletePod(&running[0])
		running = running[1:]
	}
	next()
	w.waitSlots(old, 1, 0)
	w.waitReservation(old, "it is being filled", func(s *v1alpha1.ZoneReservationStatus) bool {
		return reservationSays(s, v1alpha1.ConditionReady, v1alpha1.ReasonFilling, "")
	})
	w.waitSlots(young, 0, 0)
	w.requirePending(waiting...)
	next()
	w.waitReady(old, 2)
	w.waitSlots(young, 0, 0)
	w.requirePending(waiting...)
	next()
	w.waitReady(young, 1)
	w.waitBound(waiting...) // the other half of what was freed
}
