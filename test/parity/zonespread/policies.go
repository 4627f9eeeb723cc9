package parity

import (
	"context"

	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/perscheduler"
	"zonewise.dev/plugins/zonespread"
	"zonewise.dev/plugins/zonespread/policies"
)

// policyAPI serves policies without an API server, and drops what is written to their status.
type policyAPI struct{}

func (policyAPI) Settled() bool { return true }

func (policyAPI) PatchStatus(context.Context, string, string, []byte) error { return nil }

// ServePolicies gives ZoneSpread policies on a handle that no plugin has been built on yet. The returned function
// delivers policies to the plugins that are built then; it returns when they have been taken in.
func ServePolicies(ctx context.Context, handle fwk.Handle) (deliver func(...*v1alpha1.ZoneSpreadPolicy)) {
	delivered := make(chan []*v1alpha1.ZoneSpreadPolicy)
	done := make(chan struct{})
	source := func(ctx context.Context, handler cache.ResourceEventHandler, onChange func(bool)) (policies.Watch, error) {
		go func() {
			onChange(true)
			for {
				select {
				case <-ctx.Done():
					return
				case objects := <-delivered:
					for _, obj := range objects {
						handler.OnAdd(obj, false)
					}
					done <- struct{}{}
				}
			}
		}()
		return policyAPI{}, nil
	}
	// The plugin finds these where it would put its own.
	perscheduler.Get(ctx, handle, zonespread.Name+"/policies", func() *policies.Policies {
		return policies.New(policies.WithSource(source))
	})
	return func(objects ...*v1alpha1.ZoneSpreadPolicy) {
		delivered <- objects
		<-done
	}
}
