package integration

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	w.createGroup("train", 3)
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

// TestGroupOfAnotherNamespace: a label names a PodGroup of the pod's own namespace, and no other can be meant by it.
func TestGroupOfAnotherNamespace(t *testing.T) {
	w := newWorld(t)
	w.addNodes("8", "a1")
	w.startScheduler()
	elsewhere := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "it-elsewhere-"}}
	require.NoError(t, w.cp.client.Create(w.ctx, elsewhere))
	group := &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere.Name, Name: "train"},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: 2},
	}
	require.NoError(t, w.cp.client.Create(w.ctx, group))
	t.Cleanup(func() { require.NoError(t, w.cp.client.Delete(context.Background(), group)) })
	gang := w.create(newPods(2, "train", "1", build.Member("train"))...)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, "PodGroupNotFound: PodGroup "+w.namespace+"/train: the PodGroup does not exist in the pod's namespace")
	}
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(gang...)
	w.eventually("the PodGroup of the other namespace has no members", func() (bool, string) {
		require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(group), group))
		return group.Status.Phase == schedulingv1alpha1.PodGroupPending, fmt.Sprintf("%+v", group.Status)
	})
	slash := newPod("slash", "1", build.Member(elsewhere.Name+"/train"))
	slash.Namespace = w.namespace
	require.True(t, apierrors.IsInvalid(w.cp.client.Create(w.ctx, slash)), "a label cannot name a namespace")

	w.createGroup("train", 2)
	w.waitBound(gang...)
}

// TestPodGroupsAreNotInstalled: without the CRD pods of no gang are scheduled as ever, and members wait
// with an event that says what is missing. When the CRD is installed they go on, without a restart.
func TestPodGroupsAreNotInstalled(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, w.cp.uninstallPodGroups())
	t.Cleanup(func() { require.NoError(t, w.cp.installPodGroups()) })
	w.addNodes("8", "a1", "b1", "c1")
	w.startScheduler()
	w.waitBound(w.create(newPods(6, "web", "1", ofApp("web", 1, hard))...)...)
	require.Equal(t, map[string]int{"zone-a": 2, "zone-b": 2, "zone-c": 2}, w.byZone(labelled("web")))

	gang := w.create(newPods(3, "train", "1", build.Member("train"))...)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, "PodGroup "+w.namespace+"/train")
	}
	w.requirePending(gang...)
	// Pods without a group still pass them.
	w.waitBound(w.create(newPod("other", "1"))...)

	require.NoError(t, w.cp.installPodGroups())
	w.createGroup("train", 3)
	w.waitBound(gang...)
}
