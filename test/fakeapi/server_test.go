package fakeapi

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRequestsForAnotherPod: a scheduler that does not know yet that a pod is deleted, or was replaced by one of the same
// name, changes nothing of what there is now. The rehearsal of a bind finds the same as the bind.
func TestRequestsForAnotherPod(t *testing.T) {
	bind := func(dryRun ...string) func(context.Context, *schedulerPods) error {
		return func(ctx context.Context, pods *schedulerPods) error {
			return pods.Bind(ctx, &v1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "old"}, Target: v1.ObjectReference{Kind: "Node", Name: "n"},
			}, metav1.CreateOptions{DryRun: dryRun})
		}
	}
	requests := map[string]func(context.Context, *schedulerPods) error{
		"bind":     bind(),
		"rehearse": bind(metav1.DryRunAll),
		"patch": func(ctx context.Context, pods *schedulerPods) error {
			patch := `{"metadata":{"uid":"old"},"status":{"nominatedNodeName":"n"}}`
			_, err := pods.Patch(ctx, "p", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
			return err
		},
	}
	for name, tt := range map[string]struct {
		pod     *v1.Pod // what there is
		refuses func(error) bool
		accepts string
	}{
		"the same pod":  {pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "old"}}},
		"it has a node": {pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "old"}, Spec: v1.PodSpec{NodeName: "m"}}, refuses: apierrors.IsConflict, accepts: "patch"},
		"it terminates": {pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "old", DeletionTimestamp: &metav1.Time{}}}, refuses: apierrors.IsConflict, accepts: "patch"},
		"another pod":   {pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "new"}}, refuses: apierrors.IsConflict},
		"it is gone":    {refuses: apierrors.IsNotFound},
	} {
		for request, send := range requests {
			t.Run(fmt.Sprint(request, ", ", name), func(t *testing.T) {
				s, ctx := New(), t.Context()
				pods := s.SchedulerClient(Answers{}).CoreV1().Pods("default").(schedulerPods)
				if tt.pod != nil {
					tt.pod.Namespace, tt.pod.Name = "default", "p"
					require.NoError(t, s.Client.Tracker().Add(tt.pod))
				}
				err := send(ctx, &pods)
				if tt.refuses == nil || request == tt.accepts {
					require.NoError(t, err)
					return
				}
				require.True(t, tt.refuses(err), "%v", err)
				if tt.pod != nil {
					now, err := pods.Get(ctx, "p", metav1.GetOptions{})
					require.NoError(t, err)
					require.Equal(t, tt.pod, now)
				}
			})
		}
	}
}
