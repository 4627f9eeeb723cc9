package policies

import (
	"context"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// cluster is what informers know. Pods, nodes and the workloads that kube-scheduler watches anyway come from the
// scheduler's informers. Deployments and Jobs, which it does not watch, come from informers of our own that are started
// with the first policy: the scheduler waits for its own informers before it schedules anything, and a missing
// permission must not stop it.
type cluster struct {
	pods         corelisters.PodLister
	nodes        corelisters.NodeLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	controllers  corelisters.ReplicationControllerLister
	deployments  appslisters.DeploymentLister
	jobs         batchlisters.JobLister

	shared      informers.SharedInformerFactory
	own         informers.SharedInformerFactory
	nodesSynced toolscache.InformerSynced
	startOwners func() // starts own; further calls do nothing
}

func newCluster(shared informers.SharedInformerFactory, client clientset.Interface) *cluster {
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	return &cluster{
		pods:         shared.Core().V1().Pods().Lister(),
		nodes:        shared.Core().V1().Nodes().Lister(),
		replicaSets:  shared.Apps().V1().ReplicaSets().Lister(),
		statefulSets: shared.Apps().V1().StatefulSets().Lister(),
		controllers:  shared.Core().V1().ReplicationControllers().Lister(),
		deployments:  own.Apps().V1().Deployments().Lister(),
		jobs:         own.Batch().V1().Jobs().Lister(),
		shared:       shared,
		own:          own,
		nodesSynced:  shared.Core().V1().Nodes().Informer().HasSynced,
	}
}

// trim drops what nobody here reads of a Deployment or Job, which is most of it.
func trim(o any) (any, error) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		w.ManagedFields = nil
		w.Spec.Template.Spec = v1.PodSpec{}
	case *batchv1.Job:
		w.ManagedFields = nil
		w.Spec.Template.Spec = v1.PodSpec{}
	}
	return o, nil
}

// watchCluster registers the handlers of pods, nodes and workloads, until ctx ends.
func (s *Policies) watchCluster(ctx context.Context, c *cluster) error {
	c.startOwners = sync.OnceFunc(func() { c.own.Start(ctx.Done()) })
	owners := toolscache.ResourceEventHandlerFuncs{AddFunc: s.ownerSeen, UpdateFunc: s.ownerUpdated, DeleteFunc: s.ownerSeen}
	for _, watched := range []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandlerFuncs
	}{
		{c.shared.Core().V1().Pods().Informer(), toolscache.ResourceEventHandlerFuncs{AddFunc: s.podSeen, UpdateFunc: s.podUpdated, DeleteFunc: s.podGone}},
		{c.shared.Core().V1().Nodes().Informer(), toolscache.ResourceEventHandlerFuncs{AddFunc: s.nodeSeen, UpdateFunc: s.nodeUpdated, DeleteFunc: s.nodeSeen}},
		{c.shared.Apps().V1().ReplicaSets().Informer(), owners},
		{c.shared.Apps().V1().StatefulSets().Informer(), owners},
		{c.shared.Core().V1().ReplicationControllers().Informer(), owners},
		{c.own.Apps().V1().Deployments().Informer(), owners},
		{c.own.Batch().V1().Jobs().Informer(), owners},
	} {
		if _, err := watched.informer.AddEventHandler(watched.handler); err != nil {
			return err
		}
	}
	// An informer that has synced without a single node has no event for it.
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), c.nodesSynced) {
			s.queue.Add(nodes)
		}
	}()
	return nil
}
