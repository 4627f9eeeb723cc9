package integration

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/test/build"
)

// slowToEnd has a pod end when the test lets it.
func slowToEnd(pod *v1.Pod) { pod.Finalizers = []string{"zonewise.test/slow"} }

// createSlow creates pods that are slow to end, and lets them end with the test at the latest.
func (w *world) createSlow(n int, class string, options ...podOption) []*v1.Pod {
	w.t.Helper()
	pods := w.create(newPods(n, "small", "1", append(options, build.PriorityClass(class), slowToEnd)...)...)
	w.t.Cleanup(func() { w.letEnd(pods...) })
	return pods
}

// letEnd lets pods end that were slow to.
func (w *world) letEnd(pods ...*v1.Pod) {
	w.t.Helper()
	w.letWatcherCatchUp()
	for _, pod := range pods {
		err := w.cp.client.Patch(w.ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}},
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		require.NoError(w.t, client.IgnoreNotFound(err))
	}
}

// waitEvictedAmong waits until somebody has deleted so many of the pods.
func (w *world) waitEvictedAmong(want int, pods ...*v1.Pod) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d pods are evicted", want), func() (bool, string) {
		n := w.evicted(pods...)
		return n == want, fmt.Sprint(n)
	})
}

// evicted counts the pods that are gone or going.
func (w *world) evicted(pods ...*v1.Pod) (n int) {
	w.t.Helper()
	for _, pod := range pods {
		got := &v1.Pod{}
		err := w.cp.client.Get(w.ctx, client.ObjectKeyFromObject(pod), got)
		require.NoError(w.t, client.IgnoreNotFound(err))
		if err != nil || got.DeletionTimestamp != nil {
			n++
		}
	}
	return n
}

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

// waitGangRefused waits until the scheduler has said of a member of a gang why it is refused.
func (w *world) waitGangRefused(reason string, gang ...*v1.Pod) {
	w.t.Helper()
	w.eventually("the gang is refused: "+reason, func() (bool, string) {
		var said []string
		for _, pod := range gang {
			words := unschedulable(w.pod(pod))
			if contains(words, reason) {
				return true, ""
			}
			said = append(said, words)
		}
		return false, fmt.Sprintf("%q", said)
	})
}

// TestGangPreempts: a gang of higher priority has as many pods evicted as it needs, and is bound as a whole in their place.
func TestGangPreempts(t *testing.T) {
	w := newWorld(t)
	w.addNodes("2", "a1", "b1")
	w.startScheduler()
	low, high := w.createPriorityClass(10), w.createPriorityClass(1000)
	small := w.createSlow(4, low)
	w.waitBound(small...)
	w.createGroup("train", 3, 0)
	gang := w.create(newPods(3, "train", "1", build.Member("train"), build.PriorityClass(high))...)
	w.waitEvent("PodGroup", "train", "GangPreempts: PodGroup "+w.namespace+"/train: the gang preempts 3 pods, such as "+w.namespace+"/small-")
	w.eventually("three pods are evicted", func() (bool, string) {
		n := w.evicted(small...)
		return n == 3, fmt.Sprint(n)
	})
	for _, pod := range small {
		got := w.pod(pod)
		if got.DeletionTimestamp == nil {
			continue
		}
		w.waitEvent("Pod", pod.Name, "Preempted: PodGroup "+w.namespace+"/train: preempted by PodGroup "+w.namespace+"/train")
		var target *v1.PodCondition
		for i := range got.Status.Conditions {
			if got.Status.Conditions[i].Type == v1.DisruptionTarget {
				target = &got.Status.Conditions[i]
			}
		}
		require.NotNil(t, target)
		require.Equal(t, v1.PodReasonPreemptionByScheduler, target.Reason)
	}
	w.requirePending(gang...)
	w.letEnd(small...)
	w.waitBound(gang...)
	require.Equal(t, 3, w.evicted(small...))
}
