// Command karpenter is Karpenter with its kwok provider, whose nodes are objects alone, of the version pinned in this
// module's go.mod.
//
// Karpenter's own main package serves metrics and health on all addresses of the machine. This one serves nothing.
//
//	karpenter         runs it; it is configured by Karpenter's environment variables
//	karpenter crds    prints its CustomResourceDefinitions
package main

import (
	"bytes"
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	kwokapis "sigs.k8s.io/karpenter/kwok/apis"
	kwok "sigs.k8s.io/karpenter/kwok/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/apis"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/overlay"
	"sigs.k8s.io/karpenter/pkg/controllers"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/operator"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "crds" {
		all := [][]byte{apis.NodePoolCRD, apis.NodeClaimCRD, apis.NodeOverlayCRD, apis.CapacityBufferCRD, kwokapis.KWOKNodeClassCRD}
		os.Stdout.Write(bytes.Join(all, []byte("\n---\n")))
		return
	}
	// The operator takes ports, but no addresses; it makes its manager by this variable.
	ctrl.NewManager = func(config *rest.Config, options manager.Options) (manager.Manager, error) {
		options.Metrics.BindAddress, options.HealthProbeBindAddress = "0", "0"
		return manager.New(config, options)
	}
	ctx, op := operator.NewOperator()
	types, err := kwok.ConstructInstanceTypes(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "karpenter:", err)
		os.Exit(1)
	}
	// What follows is as in Karpenter's kwok/main.go.
	provider := kwok.NewCloudProvider(ctx, op.GetClient(), types)
	decorated := overlay.Decorate(provider, op.GetClient(), op.InstanceTypeStore)
	cluster := state.NewCluster(op.Clock, op.GetClient(), decorated)
	op.WithControllers(ctx, controllers.NewControllers(
		ctx, op.Manager, op.Clock, op.GetClient(), op.EventRecorder, decorated, provider, cluster, op.InstanceTypeStore,
	)...).Start(ctx)
}
