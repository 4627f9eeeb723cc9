package integration

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
)

// TestMinMemberOfZero: a PodGroup that asks for nothing is a mistake; its members wait with an event that
// says so, and go on when it is corrected. Below zero the API server refuses it.
func TestMinMemberOfZero(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	w.createGroup("train", 0, 0)
	gang := w.create(newPods(2, "train", "1", inGroup("train"))...)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, "spec.minMember is 0, must be at least 1")
	}
	w.waitEvent("PodGroup", "train", "spec.minMember is 0, must be at least 1")
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(gang...)

	w.setMinMember("train", 2)
	w.waitBound(gang...)

	err := w.cp.client.Create(w.ctx, &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "negative"},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: -1},
	})
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "spec.minMember")
}

// TestMinMemberThatNeverComes: a gang that needs more members than its controllers make waits, and says for how many.
func TestMinMemberThatNeverComes(t *testing.T) {
	w := newWorld(t)
	w.addNodes("8", "a1")
	w.startScheduler()
	w.createGroup("train", 1_000_000, 0)
	w.createGroup("sound", 2, 0)
	gang := w.create(newPods(3, "train", "1", inGroup("train"))...)
	const words = "needs 1000000 members, 3 exist"
	w.waitEvent("PodGroup", "train", words)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, words)
	}
	w.waitBound(w.create(newPods(2, "sound", "1", inGroup("sound"))...)...)
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(gang...)

	w.setMinMember("train", 3)
	w.waitBound(gang...)
}

// TestScheduleTimeoutsThatCannotBe are replaced by ones that can, with an event that says by which; the gangs go on.
func TestScheduleTimeoutsThatCannotBe(t *testing.T) {
	w := newWorld(t)
	w.addNodes("16", "a1")
	w.startScheduler()
	for name, bad := range map[string]struct {
		seconds int32
		words   string
	}{
		"zero":     {0, "spec.scheduleTimeoutSeconds is 0, must be at least 1: the scheduler's default is used"},
		"negative": {-5, "spec.scheduleTimeoutSeconds is -5, must be at least 1: the scheduler's default is used"},
		"long":     {901, "spec.scheduleTimeoutSeconds is 901, must be at most 900: the maximum is used"},
		"longest":  {math.MaxInt32, "spec.scheduleTimeoutSeconds is 2147483647, must be at most 900: the maximum is used"},
	} {
		w.watcher.setGang(name, 2)
		require.NoError(t, w.cp.client.Create(w.ctx, &schedulingv1alpha1.PodGroup{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
			Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: 2, ScheduleTimeoutSeconds: &bad.seconds},
		}))
		w.waitBound(w.create(newPods(2, name, "1", inGroup(name))...)...)
		w.waitEvent("PodGroup", name, "InvalidScheduleTimeout: PodGroup "+w.namespace+"/"+name+": "+bad.words)
	}
	w.waitBound(w.create(newPod("other", "1"))...)
}

// TestMembersOfDifferentPriorities make up a gang, with a warning.
func TestMembersOfDifferentPriorities(t *testing.T) {
	w := newWorld(t)
	w.addNodes("8", "a1")
	w.startScheduler()
	low, high := w.createPriorityClass(10), w.createPriorityClass(1000)
	w.createGroup("train", 4, 0)
	gang := w.create(newPods(2, "high", "1", inGroup("train"), ofPriority(high))...)
	gang = append(gang, w.create(newPods(2, "low", "1", inGroup("train"), ofPriority(low))...)...)
	w.waitEvent("PodGroup", "train", "the members have different priorities, from 10 to 1000")
	w.waitBound(gang...)
	w.waitBound(w.create(newPod("other", "1"))...)
}

// TestMembersOfAnotherScheduler do not count until they are bound: nobody here can give them a node.
func TestMembersOfAnotherScheduler(t *testing.T) {
	w := newWorld(t)
	w.addNodes("8", "a1")
	w.startScheduler()
	w.createGroup("train", 3, 0)
	gang := w.create(newPods(2, "train", "1", inGroup("train"))...)
	foreign := w.create(newPod("foreign", "1", inGroup("train"), byScheduler("somebody-else")))[0]
	w.waitEvent("PodGroup", "train", `MixedMembers: PodGroup `+w.namespace+`/train: some members name the scheduler "somebody-else", which does not schedule this gang`)
	w.waitEvent("PodGroup", "train", "needs 3 members, 2 exist and 1 more have scheduling gates or another scheduler")
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(append(gang, foreign)...)

	w.waitBound(append(gang, w.create(newPod("third", "1", inGroup("train")))...)...)
	w.requirePending(foreign)
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
	gang := w.create(newPods(2, "train", "1", inGroup("train"))...)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, "PodGroupNotFound: PodGroup "+w.namespace+"/train: the PodGroup does not exist in the pod's namespace")
	}
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(gang...)
	w.eventually("the PodGroup of the other namespace has no members", func() (bool, string) {
		require.NoError(t, w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(group), group))
		return group.Status.Phase == schedulingv1alpha1.PodGroupPending, fmt.Sprintf("%+v", group.Status)
	})
	slash := newPod("slash", "1", inGroup(elsewhere.Name+"/train"))
	slash.Namespace = w.namespace
	require.True(t, apierrors.IsInvalid(w.cp.client.Create(w.ctx, slash)), "a label cannot name a namespace")

	w.createGroup("train", 2, 0)
	w.waitBound(gang...)
}

// TestGroupThatNeverComes: a pod that names a PodGroup which is not there waits with an event that names
// it, and goes on when it comes after all.
func TestGroupThatNeverComes(t *testing.T) {
	w := newWorld(t)
	w.addNodes("4", "a1")
	w.startScheduler()
	lost := w.create(newPod("lost", "1", inGroup("nobody")))[0]
	w.waitEvent("Pod", lost.Name, "PodGroupNotFound: PodGroup "+w.namespace+"/nobody")
	w.waitBound(w.create(newPod("other", "1"))...)
	w.requirePending(lost)

	w.createGroup("nobody", 1, 0)
	w.waitBound(lost)
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

	gang := w.create(newPods(3, "train", "1", inGroup("train"))...)
	for _, pod := range gang {
		w.waitEvent("Pod", pod.Name, "PodGroup "+w.namespace+"/train")
	}
	w.requirePending(gang...)
	// Pods without a group still pass them.
	w.waitBound(w.create(newPod("other", "1"))...)

	require.NoError(t, w.cp.installPodGroups())
	w.createGroup("train", 3, 0)
	w.waitBound(gang...)
}
