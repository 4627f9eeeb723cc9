// Command controllers runs those controllers of kube-controller-manager that tests need: Deployment, ReplicaSet,
// disruption and garbage collector. It compiles a fifth of what the whole of it does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

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
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/replicaset"
)

const (
	workers = 5
	// discoveryPeriod is how often the garbage collector looks for new resources, as in kube-controller-manager.
	discoveryPeriod = 30 * time.Second
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "who the controllers are, and where the API server is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "controllers:", err)
		os.Exit(1)
	}
}

// run returns when ctx is done.
func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "controllers"
	config.QPS, config.Burst = 500, 1000
	starts, err := assemble(ctx, config)
	if err != nil {
		return err
	}
	for _, start := range starts {
		go start()
	}
	<-ctx.Done()
	return nil
}

// assemble makes the controllers and starts their informers. It returns functions that each run a controller until ctx is done.
func assemble(ctx context.Context, config *rest.Config) ([]func(), error) {
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
	apps, pods := shared.Apps().V1(), shared.Core().V1().Pods()

	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, client)
	if err != nil {
		return nil, err
	}
	replicaSets := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, client, replicaset.BurstReplicas)
	disruptions := disruption.NewDisruptionController(ctx, pods, shared.Policy().V1().PodDisruptionBudgets(), shared.Core().V1().ReplicationControllers(),
		apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), client, mapper, scales, discovery)
	// It makes informers of all resources that it finds, once the others have started.
	started := make(chan struct{})
	all := informerfactory.NewInformerFactory(shared, metadatainformer.NewSharedInformerFactory(metadataClient, 0))
	garbage, err := garbagecollector.NewGarbageCollector(ctx, client, metadataClient, mapper, garbagecollector.DefaultIgnoredResources(), all, started)
	if err != nil {
		return nil, err
	}
	all.Start(ctx.Done())
	close(started)
	return []func(){
		func() { deployments.Run(ctx, workers) },
		func() { replicaSets.Run(ctx, workers) },
		func() { runDisruptions(ctx, disruptions) },
		func() { garbage.Run(ctx, workers, discoveryPeriod) },
		func() { garbage.Sync(ctx, discovery, discoveryPeriod) },
	}, nil
}
