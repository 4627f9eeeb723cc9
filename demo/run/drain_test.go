package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"zonewise.dev/demo/cluster"
)

func fakeBinaries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Kwok, cluster.Scheduler} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 1\n"), 0o755))
	}
	return dir
}

// answers makes every eviction return the next of the errors.
func (s *scene) answers(errs ...error) *scene {
	calls := 0
	s.cluster = &cluster.Cluster{Client: fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, sub string, pod, eviction client.Object, _ ...client.SubResourceCreateOption) error {
			if sub != "eviction" || *eviction.(*policyv1.Eviction).DeleteOptions.Preconditions.UID != pod.GetUID() {
				return errors.New("not an eviction of this very pod")
			}
			err := errs[min(calls, len(errs)-1)]
			calls++
			return err
		},
	}).Build()}
	return s
}

func TestEvictTriesAgainWhileABudgetForbidsIt(t *testing.T) {
	s := newScene().answers(apierrors.NewTooManyRequests("budget", 0), apierrors.NewTooManyRequests("budget", 0), nil)
	require.NoError(t, s.evict(t.Context(), s.replica("web", "n1")))
}

func TestEvictIsContentWithAPodThatIsGone(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, gone := range []error{apierrors.NewNotFound(pods, "p"), apierrors.NewConflict(pods, "p", errors.New("uid"))} {
		s := newScene().answers(gone)
		require.NoError(t, s.evict(t.Context(), s.replica("web", "n1")))
	}
}

func TestEvictReportsWhatWaitingDoesNotMend(t *testing.T) {
	s := newScene().answers(errors.New("refused"))
	require.EqualError(t, s.evict(t.Context(), s.replica("web", "n1")), "evict services/p1: refused")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s = newScene().answers(apierrors.NewTooManyRequests("budget", 0))
	require.ErrorIs(t, s.evict(ctx, s.replica("web", "n1")), context.Canceled)
}

func TestEachStopsAtTheFirstError(t *testing.T) {
	var calls atomic.Int64
	items := make([]*corev1.Pod, 1000)
	err := each(t.Context(), items, func(context.Context, *corev1.Pod) error {
		calls.Add(1)
		return errors.New("no")
	})
	require.EqualError(t, err, "no")
	require.LessOrEqual(t, calls.Load(), int64(3*workers))

	calls.Store(0)
	require.NoError(t, each(t.Context(), items, func(context.Context, *corev1.Pod) error { calls.Add(1); return nil }))
	require.EqualValues(t, 1000, calls.Load())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, each(ctx, items, func(context.Context, *corev1.Pod) error { return nil }), context.Canceled)
}
