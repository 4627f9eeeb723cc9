package integration

import (
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
