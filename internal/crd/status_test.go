package crd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	schedv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/internal/crd"
)

func TestStatusPatchNamesWhatItIsFor(t *testing.T) {
	obj := &schedv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "trainer", UID: "1", ResourceVersion: "5"}}
	patch, err := crd.StatusPatch(obj, map[string]any{"pods": 3, "zones": []string{}})
	require.NoError(t, err)
	require.JSONEq(t, `{"metadata":{"uid":"1","resourceVersion":"5"},"status":{"pods":3,"zones":[]}}`, string(patch))

	_, err = crd.StatusPatch(obj, map[string]any{"pods": func() {}})
	require.ErrorContains(t, err, "status of batch/trainer: ")
}

func TestKeepStatuses(t *testing.T) {
	queue := workqueue.NewTypedDelayingQueue[types.UID]()
	done := make(chan struct{})
	written := make(chan types.UID, 10)
	failures := 2
	go func() {
		defer close(done)
		crd.KeepStatuses(t.Context(), queue, "PodGroup", time.Millisecond, func(_ context.Context, uid types.UID) error {
			if uid == "b" && failures > 0 {
				failures--
				return errors.New("a conflict")
			}
			written <- uid
			return nil
		})
	}()
	queue.Add("b")
	queue.Add("a")
	got := []types.UID{receive(t, written), receive(t, written)}
	require.ElementsMatch(t, []types.UID{"a", "b"}, got, "one that fails holds up no other, and is tried until it succeeds")
	queue.ShutDown()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatal("it goes on after the queue has ended")
	}
	require.Zero(t, failures)
}
