// Command controllers runs controllers of kube-controller-manager: those that tests need, Deployment, ReplicaSet,
// disruption and garbage collector, or with -controllers others, such as the demo's. It compiles a fifth of what the
// whole of kube-controller-manager does.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
)

const (
	workers = 10
	// forTests are the controllers that run without -controllers.
	forTests = "deployment-controller,replicaset-controller,disruption-controller,garbage-collector-controller"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "who the controllers are, and where the API server is")
	names := flag.String("controllers", forTests, "the controllers to run, by kube-controller-manager's names")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig, strings.Split(*names, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "controllers:", err)
		os.Exit(1)
	}
}

// run returns when ctx is done.
func run(ctx context.Context, kubeconfig string, names []string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "controllers"
	config.QPS = -1 // no limit
	env, err := newEnvironment(config)
	if err != nil {
		return err
	}
	var starts []func(context.Context)
	for _, name := range names {
		construct := constructors[name]
		if construct == nil {
			return fmt.Errorf("unknown controller %q, want some of: %s", name, strings.Join(slices.Sorted(maps.Keys(constructors)), ", "))
		}
		start, err := construct(ctx, env)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		starts = append(starts, start)
	}
	env.informers.Start(ctx.Done())
	close(env.started)
	for _, start := range starts {
		go start(ctx)
	}
	<-ctx.Done()
	return nil
}

// environment is what controllers are made of.
type environment struct {
	client    kubernetes.Interface
	metadata  metadata.Interface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
	scales    scale.ScalesGetter
	shared    informers.SharedInformerFactory
	informers informerfactory.InformerFactory // of shared and of metadata
	// started is closed when the informers have started; the garbage collector makes more of them then.
	started chan struct{}
}

func newEnvironment(config *rest.Config) (*environment, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	metadataClient, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discovery := client.Discovery()
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(discovery))
	if err != nil {
		return nil, err
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	return &environment{
		client: client, metadata: metadataClient, mapper: mapper, scales: scales, shared: shared, started: make(chan struct{}),
		informers: informerfactory.NewInformerFactory(shared, metadatainformer.NewSharedInformerFactory(metadataClient, 0)),
	}, nil
}
