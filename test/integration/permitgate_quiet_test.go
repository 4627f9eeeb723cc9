package integration

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/test/build"
)

// TestWaitingGangWritesNothing: the reason why a gang waits is written once. Looking again, and finding the same,
// writes nothing: neither to the PodGroup nor to its members, nor an event.
func TestWaitingGangWritesNothing(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1")
	s := w.startScheduler(withGateArgs(`{"maxBackoff": "1s"}`)) // rounds need not wait for its end
	w.createGroup("train", 3, 0)
	gang := w.create(newPods(3, "train", "1", build.Member("train"))...)
	w.waitGangRefused("the cluster has no room for 3 members at once: short of cpu", gang...)
	w.waitEvent("PodGroup", "train", "GangRolledBack")
	// Which member is tried in a round is the queue's choice. Each writes its reason once, and the second time that the
	// same one is refused makes a series of its event, which client-go does not write again.
	const rounds, batches = 5, 8
	for i := range batches {
		before := w.written("train")
		for j := range rounds {
			w.oneMoreRound(s, i*rounds+j)
		}
		w.waitQuiet()
		if reflect.DeepEqual(before, w.written("train")) {
			return
		}
	}
	require.Failf(t, "rounds write again and again", "%v", w.written("train"))
}

// oneMoreRound has the gangs that wait for room look again, by a change of a node that lets no pod fit, and waits until
// one has.
func (w *world) oneMoreRound(s *runningScheduler, round int) {
	w.t.Helper()
	const refused = "Proposed for a gang"
	before := len(s.log.lines(refused))
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"zonewise.test/round":"%d"}}}`, round)
	require.NoError(w.t, w.cp.client.Patch(w.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a1"}}, client.RawPatch(types.MergePatchType, patch)))
	w.eventually("the gang is refused once more", func() (bool, string) {
		n := len(s.log.lines(refused))
		return n > before, fmt.Sprint(n)
	})
}

// written is what has been written about a gang: the versions of its PodGroup, of the test's pods and of the events
// about them, by name.
func (w *world) written(group string) map[string]string {
	w.t.Helper()
	versions := map[string]string{}
	podGroup := &schedulingv1alpha1.PodGroup{}
	require.NoError(w.t, w.cp.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: group}, podGroup))
	versions["PodGroup "+group] = podGroup.ResourceVersion
	for _, pod := range w.pods(nil) {
		versions["Pod "+pod.Name] = pod.ResourceVersion
	}
	events, err := w.cp.kube.EventsV1().Events(w.namespace).List(w.ctx, metav1.ListOptions{})
	require.NoError(w.t, err)
	for i := range events.Items {
		e := &events.Items[i]
		versions[fmt.Sprintf("Event %s about %s %s: %s: %s", e.Name, e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)] = e.ResourceVersion
	}
	return versions
}
