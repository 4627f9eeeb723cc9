package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
)

// requireNotEvicted fails the test if one of the pods is gone or going.
func (w *world) requireNotEvicted(pods ...*v1.Pod) {
	w.t.Helper()
	for _, pod := range pods {
		got := w.pod(pod)
		require.Equal(w.t, pod.UID, got.UID)
		require.Nil(w.t, got.DeletionTimestamp, got.Name)
	}
}

// requireNoPreemption fails the test if the scheduler has evicted a pod of the test.
func (w *world) requireNoPreemption() {
	w.t.Helper()
	events, err := w.cp.kube.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	for _, event := range events.Items {
		require.NotEqual(w.t, "Preempted", event.Reason, event.Regarding.Name)
	}
}

// TestReservationAndPreemption: a pod that is kept out evicts pods of a lower priority if that makes room for it beside the slots,
// and evicts nobody if it does not. An owner uses a slot rather than to evict.
func TestReservationAndPreemption(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("4", "a1")
	low, high := w.createPriorityClass(10), w.createPriorityClass(100)
	r := w.reserve("shop", inZones(2, "a"), ofMode(guarantee), func(s *v1alpha1.ZoneReservationSpec) { s.Priority = ptr.To[int32](1000) })
	w.startScheduler()
	w.waitReady(r, 2)
	victims := w.create(newPods(2, "low", "1", ofPriority(low), withLabel("victim", "yes"))...)
	w.waitBound(victims...)

	// With both victims gone there would be 2 cpus for a pod of 3.
	tooLarge := w.create(newPod("too-large", "3", ofPriority(high)))
	w.waitUnschedulable("shop", tooLarge...)
	// An owner of the same priority goes into a slot.
	w.waitBound(w.create(owners(1, "web", "1", ofPriority(high))...)...)
	w.requireNotEvicted(victims...)
	w.requireNoPreemption()

	fits := w.create(newPod("fits", "2", ofPriority(high)))
	w.waitBound(fits...)
	w.requirePending(tooLarge...)
	w.eventually("the victims are gone", func() (bool, string) {
		left := w.pods(map[string]string{"victim": "yes"})
		return len(left) == 0, fmt.Sprintf("%d are left", len(left))
	})
	w.waitBound(w.create(owners(1, "next", "1")...)...) // the other slot has been kept all the time
	w.waitSlots(r, 2, 2)
}

// TestReservationAndNominatedPod: while a pod waits for its victims to end, the room that they leave is neither given to others nor
// taken for slots, and the slots are not given to it.
func TestReservationAndNominatedPod(t *testing.T) {
	w := newReservationWorld(t)
	w.addNodes("3", "a1")
	low, high, above := w.createPriorityClass(10), w.createPriorityClass(100), w.createPriorityClass(200)
	r := w.reserve("shop", inZones(1, "a"), ofMode(guarantee), func(s *v1alpha1.ZoneReservationSpec) { s.Priority = ptr.To[int32](1000) })
	w.startScheduler()
	w.waitReady(r, 1)
	slow := newPod("slow", "2", ofPriority(low))
	slow.Finalizers = []string{"zonewise.test/slow"} // it ends when the test lets it
	w.waitBound(w.create(slow)...)
	end := func() {
		err := w.cp.client.Patch(w.ctx, slow, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		require.NoError(t, client.IgnoreNotFound(err))
	}
	t.Cleanup(end)

	preemptor := w.create(newPod("preemptor", "2", ofPriority(high)))[0]
	w.eventually("the pod is nominated", func() (bool, string) {
		return w.pod(preemptor).Status.NominatedNodeName == "a1", unschedulable(w.pod(preemptor))
	})
	// The framework counts the victim and the nominated pod both, for pods of a lower priority than the latter.
	w.waitBound(w.create(owners(1, "web", "1", ofPriority(above))...)...)
	w.requirePending(preemptor)

	w.waitUnschedulable("", w.create(newPod("behind", "1"))...)

	end()
	w.waitBound(preemptor)
	w.waitSlots(r, 1, 1)
}
