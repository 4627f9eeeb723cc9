package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/test/build"
)

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

	w.createGroup("train", 2, 0)
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
	w.createGroup("train", 3, 0)
	w.waitBound(gang...)
}
