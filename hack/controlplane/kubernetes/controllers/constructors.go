package main

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
)

// Periods that are kube-controller-manager's own.
const (
	discoveryPeriod     = 30 * time.Second // how often the garbage collector looks for new resources
	namespacePeriod     = 5 * time.Minute
	daemonBackoff       = time.Second
	daemonBackoffMax    = 15 * time.Minute
	unhealthyShare      = 0.55 // of a zone's nodes
	nodeStartupDuration = time.Minute
)

// How node-lifecycle-controller treats simulated nodes, whose kubelets report every few minutes. What is marked as not
// ready is tainted within a second and without a limit.
const (
	nodeMonitorPeriod   = time.Second
	nodeGracePeriod     = 20 * time.Minute
	nodeEvictionRate    = 1000 // a second
	largeClusterMinimum = 1    // nodes
)

// constructors are those of the controllers, by kube-controller-manager's names. What they return runs a controller
// until the context is done. pod-garbage-collector-controller is not here: it links the scheduler.
var constructors = map[string]func(context.Context, *environment) (func(context.Context), error){
	"daemonset-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		apps, core := e.shared.Apps().V1(), e.shared.Core().V1()
		c, err := daemon.NewDaemonSetsController(ctx, apps.DaemonSets(), apps.ControllerRevisions(), core.Pods(), core.Nodes(), e.client,
			flowcontrol.NewBackOff(daemonBackoff, daemonBackoffMax))
		return func(ctx context.Context) { c.Run(ctx, workers) }, err
	},
	"deployment-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		apps := e.shared.Apps().V1()
		c, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), e.shared.Core().V1().Pods(), e.client)
		return func(ctx context.Context) { c.Run(ctx, workers) }, err
	},
	"disruption-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		apps, core := e.shared.Apps().V1(), e.shared.Core().V1()
		c := disruption.NewDisruptionController(ctx, core.Pods(), e.shared.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(),
			apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(), e.client, e.mapper, e.scales, e.client.Discovery())
		return func(ctx context.Context) { runDisruptions(ctx, c) }, nil
	},
	"garbage-collector-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		c, err := garbagecollector.NewGarbageCollector(ctx, e.client, e.metadata, e.mapper, garbagecollector.DefaultIgnoredResources(),
			e.informers, e.started)
		return func(ctx context.Context) {
			go c.Sync(ctx, e.client.Discovery(), discoveryPeriod)
			c.Run(ctx, workers, discoveryPeriod)
		}, err
	},
	"job-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		// Without the informers of Workloads and PodGroups, as where the gate WorkloadWithJob is off.
		c, err := job.NewController(ctx, e.client, e.shared.Core().V1().Pods(), e.shared.Batch().V1().Jobs(), nil, nil)
		return func(ctx context.Context) { c.Run(ctx, workers) }, err
	},
	"namespace-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		c := namespace.NewNamespaceController(ctx, e.client, e.metadata, e.client.Discovery().ServerPreferredNamespacedResources,
			e.shared.Core().V1().Namespaces(), namespacePeriod, v1.FinalizerKubernetes)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"node-lifecycle-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		core := e.shared.Core().V1()
		c, err := nodelifecycle.NewNodeLifecycleController(ctx, e.shared.Coordination().V1().Leases(), core.Pods(), core.Nodes(),
			e.shared.Apps().V1().DaemonSets(), e.client, nodeMonitorPeriod, nodeStartupDuration, nodeGracePeriod,
			nodeEvictionRate, nodeEvictionRate, largeClusterMinimum, unhealthyShare)
		return func(ctx context.Context) { c.Run(ctx) }, err
	},
	"replicaset-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		c := replicaset.NewReplicaSetController(ctx, e.shared.Apps().V1().ReplicaSets(), e.shared.Core().V1().Pods(), e.client,
			replicaset.BurstReplicas)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"statefulset-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		apps, core := e.shared.Apps().V1(), e.shared.Core().V1()
		c := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(),
			e.client)
		return func(ctx context.Context) { c.Run(ctx, workers) }, nil
	},
	"taint-eviction-controller": func(ctx context.Context, e *environment) (func(context.Context), error) {
		core := e.shared.Core().V1()
		c, err := tainteviction.New(ctx, e.client, core.Pods(), core.Nodes(), "taint-eviction-controller")
		return func(ctx context.Context) { c.Run(ctx) }, err
	},
}
