package serve

import (
	"context"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"zonewise.dev/internal/informer"
	"zonewise.dev/plugins/zonespread/policy"
)

// cluster has the informers. Pods, nodes and the workloads that kube-scheduler watches anyway come from the scheduler's
// informers. Deployments and Jobs, which it does not watch, come from separate informers that start with the first policy:
// the scheduler waits for its own informers before it schedules any pod, and a missing permission must not stop it.
type cluster struct {
	pods         corelisters.PodLister
	nodes        corelisters.NodeLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	controllers  corelisters.ReplicationControllerLister
	deployments  appslisters.DeploymentLister
	jobs         batchlisters.JobLister

	// podsAndNodes are done when their handlers have seen the first lists, workloads those of the workloads.
	podsAndNodes, workloads []toolscache.DoneChecker
	startWorkloads          func() // starts the separate informers, once
}

// synced reports whether the handlers of pods and nodes have seen their first lists. Before that an empty cache would look
// like a lost cluster.
func (c *cluster) synced() bool { return allDone(c.podsAndNodes) }

// workloadsSynced reports whether the handlers of workloads have, too.
func (c *cluster) workloadsSynced() bool { return c.synced() && allDone(c.workloads) }

func allDone(of []toolscache.DoneChecker) bool {
	return !slices.ContainsFunc(of, func(c toolscache.DoneChecker) bool { return !toolscache.IsDone(c) })
}

// watchCluster registers the handlers of pods, nodes and workloads, until ctx ends.
func (s *Policies) watchCluster(ctx context.Context, shared informers.SharedInformerFactory, client clientset.Interface) (*cluster, error) {
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	c := &cluster{
		pods:           shared.Core().V1().Pods().Lister(),
		nodes:          shared.Core().V1().Nodes().Lister(),
		replicaSets:    shared.Apps().V1().ReplicaSets().Lister(),
		statefulSets:   shared.Apps().V1().StatefulSets().Lister(),
		controllers:    shared.Core().V1().ReplicationControllers().Lister(),
		deployments:    own.Apps().V1().Deployments().Lister(),
		jobs:           own.Batch().V1().Jobs().Lister(),
		startWorkloads: sync.OnceFunc(func() { own.Start(ctx.Done()) }),
	}
	for _, watched := range []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
		synced   *[]toolscache.DoneChecker
	}{
		{shared.Core().V1().Pods().Informer(), informer.Funcs[*v1.Pod]{Add: s.podSeen, Update: s.podChanged, Delete: s.podGone}, &c.podsAndNodes},
		{shared.Core().V1().Nodes().Informer(), informer.Funcs[*v1.Node]{Add: s.nodeSeen, Update: s.nodeChanged, Delete: s.nodeGone}, &c.podsAndNodes},
		{shared.Apps().V1().ReplicaSets().Informer(), workloads[*appsv1.ReplicaSet](s), &c.workloads},
		{shared.Apps().V1().StatefulSets().Informer(), workloads[*appsv1.StatefulSet](s), &c.workloads},
		{shared.Core().V1().ReplicationControllers().Informer(), workloads[*v1.ReplicationController](s), &c.workloads},
		{own.Apps().V1().Deployments().Informer(), workloads[*appsv1.Deployment](s), &c.workloads},
		{own.Batch().V1().Jobs().Informer(), workloads[*batchv1.Job](s), &c.workloads},
	} {
		registration, err := watched.informer.AddEventHandler(watched.handler)
		if err != nil {
			return nil, err
		}
		*watched.synced = append(*watched.synced, registration.HasSyncedChecker())
	}
	return c, nil
}

// trim drops the parts of a Deployment or Job that are not used here, which are most of it.
func trim(o any) (any, error) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		w.ManagedFields = nil
		w.Spec.Template = v1.PodTemplateSpec{}
	case *batchv1.Job:
		w.ManagedFields = nil
		w.Spec.Template = v1.PodTemplateSpec{}
	}
	return o, nil
}

// workloads handles the events of one kind of workload. Only changes matter: a new or deleted workload makes
// caps known or unknown, which helps no waiting pod.
func workloads[T metav1.Object](s *Policies) informer.Funcs[T] {
	return informer.Funcs[T]{
		Add:    func(o T, _ bool) { s.reportLater(o.GetNamespace()) },
		Delete: func(o T) { s.reportLater(o.GetNamespace()) },
		Update: func(was, is T) {
			before, after := s.cluster.behind(was), s.cluster.behind(is)
			if before.Replicas == after.Replicas && before.Known == after.Known {
				return
			}
			s.reportLater(is.GetNamespace())
			if before.Known && after.Known {
				s.rescaled(is.GetNamespace(), after, before.Replicas)
			}
		},
	}
}

// behind returns the workload that an object is, or that controls it.
func (c *cluster) behind(o metav1.Object) policy.Workload {
	set, isSet := o.(*appsv1.ReplicaSet)
	over := metav1.GetControllerOfNoCopy(o)
	if !isSet || over == nil {
		w, _ := policy.WorkloadOf(o)
		return w
	}
	if over.Kind != "Deployment" {
		return policy.Workload{}
	}
	if d, err := c.deployments.Deployments(set.Namespace).Get(over.Name); err == nil && d.UID == over.UID {
		w, _ := policy.WorkloadOf(d)
		return w
	}
	return policy.BehindReplicaSet(set, over)
}

// workload returns the top-level workload of a pod with a controller; the zero Workload when there is none that is
// known. An object of the same kind name in another API group has another UID.
func (c *cluster) workload(namespace string, r reference) policy.Workload {
	var o metav1.Object
	var err error
	switch r.kind {
	case "ReplicaSet":
		o, err = c.replicaSets.ReplicaSets(namespace).Get(r.name)
	case "StatefulSet":
		o, err = c.statefulSets.StatefulSets(namespace).Get(r.name)
	case "Job":
		o, err = c.jobs.Jobs(namespace).Get(r.name)
	case "ReplicationController":
		o, err = c.controllers.ReplicationControllers(namespace).Get(r.name)
	default:
		return policy.Workload{}
	}
	if err != nil || o.GetUID() != r.uid {
		return policy.Workload{}
	}
	return c.behind(o)
}
