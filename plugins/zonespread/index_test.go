package zonespread

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
)

// schedulerHandle is the handle of a profile, as far as it tells which scheduler the profile belongs to.
type schedulerHandle struct {
	fwk.Handle
	factory informers.SharedInformerFactory
}

func (h schedulerHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

func TestProfilesOfOneSchedulerShareTheIndex(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	index := indexFor(ctx, schedulerHandle{factory: factory})
	require.Same(t, index, indexFor(ctx, schedulerHandle{factory: factory}))

	another := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	require.NotSame(t, index, indexFor(ctx, schedulerHandle{factory: another}))

	// Without informers nothing tells two schedulers apart.
	lonely := indexFor(ctx, schedulerHandle{})
	require.NotSame(t, lonely, indexFor(ctx, schedulerHandle{}))
}
