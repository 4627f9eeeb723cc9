package cli

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/test/internal/apiserver"
)

// TestSurvivalHold is the second walk-through of docs/survival.md: room is held for a service, batch work of the same
// priority takes the rest, a zone dies, and the service runs on. Then nothing is to be held any more.
func TestSurvivalHold(t *testing.T) {
	w := newLivingWorld(t)
	w.StartScheduler(t)
	w.startController()
	steps := w.walkthrough("docs/survival.md", "Walk-through: room that batch work cannot take")
	steps.dir = filepath.Join(w.Root, "examples", "zone-survival") // where the first one has led
	w.Kubectl(t, "apply", "-f", filepath.Join(steps.dir, "service.yaml"))
	w.Kubectl(t, "-n", apiserver.Namespace, "rollout", "status", "deployment/web")
	steps.next()
	// Two displaced replicas of any zone need one slot in each of the others, beside the two that run there.
	w.waitHeld(v1alpha1.ReasonRoomHeld)
	is := w.waitReason(v1alpha1.ReasonAllPlaced)
	require.Len(t, is.Status.Reservations, 1)
	name := is.Status.Reservations[0].Name
	require.Equal(t, "3", is.Status.Held.Cpu().String())
	require.Equal(t, metav1.ConditionTrue, meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionSurvives).Status)
	r := w.reservation(name)
	require.True(t, metav1.IsControlledBy(r, is))
	w.waitMetric(`zonewise_survival_held{resource="cpu",zonesurvival="services"} 3`)
	w.waitMetric(`zonewise_survival_missing_pods{zone="a",zonesurvival="services"} 0`)

	steps.next() // batch work takes all that is not held: 1 CPU on each node
	is = w.waitReason(v1alpha1.ReasonAllPlaced)
	require.Equal(t, metav1.ConditionTrue, meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionHeld).Status)

	// The zone dies.
	steps.next()
	w.until("no pod is bound to the lost node any more", func() (bool, error) {
		lost := w.on("node-a")
		for _, pod := range lost { // as the garbage collector of pods does
			if err := client.IgnoreNotFound(w.Delete(t.Context(), pod, client.GracePeriodSeconds(0))); err != nil {
				return false, err
			}
		}
		return len(lost) == 0, nil
	})
	w.until("all replicas run", func() (bool, error) { return w.bound("web") == 6, nil })
	require.Equal(t, 2, w.bound("batch"), "no pod has given way")
	is = w.waitHeld(v1alpha1.ReasonRoomMissing)
	require.NotEmpty(t, is.Status.Missing, "the slots of the lost zone are kept for its return")

	// Nothing is to be held any more.
	steps.next()
	steps.requireEnd()
	w.until("the reservation is deleted", func() (bool, error) {
		return apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.ZoneReservation{})), nil
	})
	w.until("the status says nothing of it", func() (bool, error) {
		err := w.Get(t.Context(), client.ObjectKeyFromObject(is), is)
		return meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionHeld) == nil && len(is.Status.Reservations) == 0 && len(is.Status.Missing) == 0, err
	})
	require.Equal(t, 6, w.bound("web"), "what runs stays")
}

// waitHeld waits until the ZoneSurvival says with a reason whether its room is held.
func (w *world) waitHeld(reason string) *v1alpha1.ZoneSurvival {
	w.t.Helper()
	is := &v1alpha1.ZoneSurvival{}
	w.until(reason, func() (bool, error) {
		err := w.Get(w.t.Context(), client.ObjectKey{Name: "services"}, is)
		c := meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionHeld)
		return c != nil && c.Reason == reason && is.Status.Pods == int64(w.bound("web")), err
	})
	return is
}

func (w *world) reservation(name string) *v1alpha1.ZoneReservation {
	w.t.Helper()
	r := &v1alpha1.ZoneReservation{}
	require.NoError(w.t, w.Get(w.t.Context(), client.ObjectKey{Name: name}, r))
	return r
}

func (w *world) pods(which func(pod *corev1.Pod) bool) []client.Object {
	w.t.Helper()
	var list corev1.PodList
	require.NoError(w.t, w.List(w.t.Context(), &list, client.InNamespace(apiserver.Namespace)))
	var out []client.Object
	for i := range list.Items {
		if which(&list.Items[i]) {
			out = append(out, &list.Items[i])
		}
	}
	return out
}

// bound counts the pods of an app that have a node.
func (w *world) bound(app string) int {
	return len(w.pods(func(pod *corev1.Pod) bool { return pod.Labels["app"] == app && pod.Spec.NodeName != "" }))
}

func (w *world) on(node string) []client.Object {
	return w.pods(func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node })
}
