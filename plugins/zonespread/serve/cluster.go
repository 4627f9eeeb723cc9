package serve

import (
	"context"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
// informers. Jobs, which it does not watch, come from a separate informer that starts with the first policy: the
// scheduler waits for its own informers before it schedules any pod, and a missing permission must not stop it.
type cluster struct {
	pods         corelisters.PodLister
	nodes        corelisters.NodeLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	controllers  corelisters.ReplicationControllerLister
	jobs         batchlisters.JobLister

	// podsAndNodes are done when their handlers have seen the first lists, workloads those of the workloads.
	podsAndNodes, workloads []toolscache.DoneChecker
	jobsKnown               toolscache.DoneChecker
	startJobs               func() // starts the separate informer, once
}

// synced reports whether the handlers of pods and nodes have seen their first lists. Before that an empty cache would
// look like a lost cluster.
func (c *cluster) synced() bool { return allDone(c.podsAndNodes) }

// workloadsSynced reports whether the handlers of workloads have, too.
func (c *cluster) workloadsSynced() bool { return c.synced() && allDone(c.workloads) }

func allDone(of []toolscache.DoneChecker) bool {
	return !slices.ContainsFunc(of, func(c toolscache.DoneChecker) bool { return !toolscache.IsDone(c) })
}

// watchCluster registers the handlers of pods, nodes and workloads, until ctx ends.
func (s *Policies) watchCluster(
	ctx context.Context, shared informers.SharedInformerFactory, client clientset.Interface,
) (*cluster, error) {
	own := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(trim))
	c := &cluster{
		pods:         shared.Core().V1().Pods().Lister(),
		nodes:        shared.Core().V1().Nodes().Lister(),
		replicaSets:  shared.Apps().V1().ReplicaSets().Lister(),
		statefulSets: shared.Apps().V1().StatefulSets().Lister(),
		controllers:  shared.Core().V1().ReplicationControllers().Lister(),
		jobs:         own.Batch().V1().Jobs().Lister(),
		startJobs:    sync.OnceFunc(func() { own.Start(ctx.Done()) }),
	}
	for _, watched := range []struct {
		informer toolscache.SharedIndexInformer
		handler  toolscache.ResourceEventHandler
		synced   *[]toolscache.DoneChecker
	}{
		{
			shared.Core().V1().Pods().Informer(),
			informer.Funcs[*v1.Pod]{Add: s.podSeen, Update: s.podChanged, Delete: s.podGone},
			&c.podsAndNodes,
		},
		{
			shared.Core().V1().Nodes().Informer(),
			informer.Funcs[*v1.Node]{Add: s.nodeSeen, Update: s.nodeChanged, Delete: s.nodeGone},
			&c.podsAndNodes,
		},
		{shared.Apps().V1().ReplicaSets().Informer(), workloads[*appsv1.ReplicaSet](s), &c.workloads},
		{shared.Apps().V1().StatefulSets().Informer(), workloads[*appsv1.StatefulSet](s), &c.workloads},
		{shared.Core().V1().ReplicationControllers().Informer(), workloads[*v1.ReplicationController](s), &c.workloads},
		{own.Batch().V1().Jobs().Informer(), workloads[*batchv1.Job](s), &c.workloads},
	} {
		registration, err := watched.informer.AddEventHandler(watched.handler)
		if err != nil {
			return nil, err
		}
		*watched.synced = append(*watched.synced, registration.HasSyncedChecker())
	}
	c.jobsKnown = c.workloads[len(c.workloads)-1]
	return c, nil
}

// trim drops the parts of a Job that are not used here, which are most of it.
func trim(o any) (any, error) {
	if job, ok := o.(*batchv1.Job); ok {
		job.ManagedFields = nil
		job.Spec.Template = v1.PodTemplateSpec{}
	}
	return o, nil
}

// workloads handles the events of one kind of workload.
func workloads[T metav1.Object](s *Policies) informer.Funcs[T] {
	return informer.Funcs[T]{
		Add: func(o T, _ bool) {
			s.reportLater(o.GetNamespace())
			s.ownerArrived(o.GetUID())
		},
		Delete: func(o T) { s.reportLater(o.GetNamespace()) },
		Update: func(older, newer T) {
			before, after := policy.WorkloadOf(older), policy.WorkloadOf(newer)
			if before.Replicas == after.Replicas && before.Known == after.Known {
				return
			}
			s.reportLater(newer.GetNamespace())
			if before.Known && after.Known {
				s.rescaled(newer.GetNamespace(), &after)
			}
		},
	}
}

// reference names the controller of a pod.
type reference struct {
	apiVersion, kind, name string
	uid                    types.UID
}

func ownerOf(pod *v1.Pod) reference {
	c := metav1.GetControllerOfNoCopy(pod)
	if c == nil {
		return reference{}
	}
	return reference{apiVersion: c.APIVersion, kind: c.Kind, name: c.Name, uid: c.UID}
}

// workload returns the top-level workload of a pod with a controller; the zero Workload when there is none that is
// known. It is missing if the controller is of a kind that is watched.
func (c *cluster) workload(namespace string, r reference) (w policy.Workload, missing bool) {
	var o metav1.Object
	var err error
	switch (reference{apiVersion: r.apiVersion, kind: r.kind}) {
	case reference{apiVersion: "apps/v1", kind: "ReplicaSet"}:
		o, err = c.replicaSets.ReplicaSets(namespace).Get(r.name)
	case reference{apiVersion: "apps/v1", kind: "StatefulSet"}:
		o, err = c.statefulSets.StatefulSets(namespace).Get(r.name)
	case reference{apiVersion: "batch/v1", kind: "Job"}:
		if !toolscache.IsDone(c.jobsKnown) {
			return policy.Workload{}, false // perhaps the scheduler may not read Jobs
		}
		o, err = c.jobs.Jobs(namespace).Get(r.name)
	case reference{apiVersion: "v1", kind: "ReplicationController"}:
		o, err = c.controllers.ReplicationControllers(namespace).Get(r.name)
	default:
		return policy.Workload{}, false
	}
	if err != nil || o.GetUID() != r.uid {
		return policy.Workload{}, true
	}
	return policy.WorkloadOf(o), false
}
