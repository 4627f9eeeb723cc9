package parity

import (
	"context"

	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/plugins/zonespread"
	"zonewise.dev/test/crdtest"
)

// ServePolicies gives ZoneSpread policies on a handle that no plugin has been built on yet: those that are put into the
// source that it returns.
func ServePolicies(ctx context.Context, handle fwk.Handle) *crdtest.Source {
	source := crdtest.New()
	// The plugin finds it where it would put its own.
	perscheduler.Get(ctx, handle, zonespread.Name, func() *zonespread.Shared {
		return zonespread.NewShared(zonespread.WithSource(source))
	})
	return source
}
