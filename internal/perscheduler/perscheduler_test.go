package perscheduler_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"zonewise.dev/internal/perscheduler"
)

type handle struct {
	factory informers.SharedInformerFactory
}

func (h handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

func newHandle() handle {
	return handle{informers.NewSharedInformerFactory(fake.NewSimpleClientset(), 0)}
}

func TestProfilesOfOneSchedulerShare(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := newHandle()
	made := 0
	get := func(ctx context.Context, h handle, name string) *int {
		return perscheduler.Get(ctx, h, name, func() *int { made++; return new(int) })
	}

	first := get(ctx, h, "ledger")
	require.Same(t, first, get(ctx, handle{h.factory}, "ledger"), "another profile of the same scheduler")
	require.Equal(t, 1, made)
	require.NotSame(t, first, get(ctx, h, "gangs"), "another name")
	require.NotSame(t, first, get(ctx, newHandle(), "ledger"), "another scheduler")

	cancel()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NotSame(c, first, get(context.Background(), h, "ledger"), "a scheduler that starts later")
	}, time.Minute, time.Millisecond)
}
