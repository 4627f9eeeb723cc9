package framework

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	toolscache "k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/zonespread"
	"zonewise.dev/test/crdtest"
	"zonewise.dev/test/schedulertest"
)

// lateSource is a source of which nobody knows what it has before settled is set.
type lateSource struct {
	*crdtest.Source
	settled atomic.Bool
}

func (s *lateSource) Watch(
	ctx context.Context, obj client.Object, handler toolscache.ResourceEventHandler, onChange func(bool),
) (crd.Kind, error) {
	kind, err := s.Source.Watch(ctx, obj, handler, onChange)
	return lateKind{kind, s}, err
}

type lateKind struct {
	crd.Kind
	source *lateSource
}

func (k lateKind) Settled() bool { return k.source.settled.Load() }

// TestNoPodIsSignedBeforePoliciesAreKnown: the scheduling queue keeps the signatures of the pods that it has at the
// start.
func TestNoPodIsSignedBeforePoliciesAreKnown(t *testing.T) {
	api := fake.NewSimpleClientset()
	handle, err := frameworkruntime.NewFramework(t.Context(), nil, nil,
		frameworkruntime.WithClientSet(api),
		frameworkruntime.WithInformerFactory(schedulertest.NewInformerFactory(api)),
		frameworkruntime.WithSnapshotSharedLister(cache.NewSnapshot(nil, nil)),
	)
	require.NoError(t, err)
	source := &lateSource{Source: crdtest.New()}
	args := &runtime.Unknown{Raw: []byte(`{"defaultingType": "List"}`)}
	plugin, err := zonespread.NewShared(zonespread.WithSource(source)).New(t.Context(), args, handle)
	require.NoError(t, err)
	sign := func() *fwk.Status {
		_, status := plugin.(fwk.SignPlugin).SignPod(t.Context(), newPod("web", "100m"))
		return status
	}
	require.True(t, sign().IsRejected(), "a policy may be about to come")
	source.settled.Store(true)
	require.True(t, sign().IsSuccess())
	source.Put(newPolicy())
	require.True(t, sign().IsRejected())
}
