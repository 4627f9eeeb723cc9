package policies

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/zonespread/policy"
)

// The kinds of workloads that are known. Names alone tell: what has the name of another group's kind does not have its
// UID.
const (
	kindDeployment  = "Deployment"
	kindReplicaSet  = "ReplicaSet"
	kindStatefulSet = "StatefulSet"
	kindJob         = "Job"
	kindController  = "ReplicationController"
)

// ownerSeen has the policies that a workload concerns ask again how many pods are wanted.
func (s *Policies) ownerSeen(o any) {
	w, ok := workloadOf(o)
	if !ok {
		return
	}
	s.eachOf(w.namespace, func(e *entry) bool {
		if !e.concerns(w) {
			return false
		}
		e.fresh = false
		return true
	})
}

// ownerUpdated leaves out updates of a status, which come with every pod; of a Job it is the status that tells how many
// pods are still missing.
func (s *Policies) ownerUpdated(before, after any) {
	was, ok1 := workloadOf(before)
	is, ok2 := workloadOf(after)
	if ok1 && ok2 && was.reference == is.reference && was.generation == is.generation && was.controller == is.controller {
		a, ok1 := before.(*batchv1.Job)
		b, ok2 := after.(*batchv1.Job)
		if !ok1 || !ok2 || policy.JobReplicas(a) == policy.JobReplicas(b) {
			return
		}
	}
	if ok1 {
		s.ownerSeen(before) // the template's labels may have been others
	}
	s.ownerSeen(after)
}

// workload is what tells which policies a workload concerns.
type workload struct {
	namespace string
	reference
	generation int64
	controller reference
	labels     map[string]string // of the template
}

func workloadOf(o any) (workload, bool) {
	var kind string
	template := &v1.PodTemplateSpec{}
	meta, ok := object[metav1.Object](o)
	if !ok {
		return workload{}, false
	}
	switch w := meta.(type) {
	case *appsv1.Deployment:
		kind, template = kindDeployment, &w.Spec.Template
	case *appsv1.ReplicaSet:
		kind, template = kindReplicaSet, &w.Spec.Template
	case *appsv1.StatefulSet:
		kind, template = kindStatefulSet, &w.Spec.Template
	case *batchv1.Job:
		kind, template = kindJob, &w.Spec.Template
	case *v1.ReplicationController:
		kind = kindController
		if w.Spec.Template != nil {
			template = w.Spec.Template
		}
	default:
		return workload{}, false
	}
	return workload{
		namespace: meta.GetNamespace(), reference: reference{kind: kind, name: meta.GetName(), uid: meta.GetUID()},
		generation: meta.GetGeneration(), controller: controllerOf(meta), labels: template.Labels,
	}, true
}

// concerns tells whether a workload may be behind pods that the policy selects: by its template, by what is known of
// it, or because there are pods whose workload is not known yet.
func (e *entry) concerns(w workload) bool {
	if !e.fresh {
		return true
	}
	if e.policy.Selects(w.labels) || e.pods.direct[w.reference] > 0 {
		return true
	}
	for i := range e.unowned {
		if e.unowned[i] != (reference{}) {
			return true
		}
	}
	return slices.ContainsFunc(e.owners, func(o policy.Owner) bool { return o.UID == w.uid })
}

// demandLocked returns how many pods are wanted. incoming, when it is not nil, is a pod that the informer may not have
// shown yet; it counts all the same.
func (s *Policies) demandLocked(e *entry, incoming *v1.Pod) policy.Demand {
	if !e.fresh {
		e.unowned = e.unowned[:0]
		for controller := range e.pods.direct {
			if s.cluster.top(e.policy.Namespace(), controller) == "" {
				e.unowned = append(e.unowned, controller)
			}
		}
		e.owners, e.fresh = s.ownersOf(e), true
	}
	d := policy.Demand{Owners: e.owners, Matching: int64(len(e.pods.facts))}
	for _, controller := range e.unowned {
		d.Unowned += e.pods.direct[controller]
	}
	if incoming != nil {
		if _, known := e.pods.facts[incoming.UID]; !known {
			d.Matching++
			if s.cluster.top(incoming.Namespace, controllerOf(incoming)) == "" {
				d.Unowned++
			}
		}
	}
	return d
}

// top returns the UID of the top-level workload behind the controller of a pod, and "" when there is none that
// is known.
func (c *cluster) top(namespace string, r reference) types.UID {
	switch r.kind {
	case kindReplicaSet:
		set, err := c.replicaSets.ReplicaSets(namespace).Get(r.name)
		if err != nil || set.UID != r.uid {
			return ""
		}
		over := controllerOf(set)
		if over == (reference{}) {
			return r.uid
		}
		return c.topOfKind(namespace, over, kindDeployment)
	case kindStatefulSet, kindJob, kindController:
		return c.topOfKind(namespace, r, r.kind)
	}
	return ""
}

// topOfKind returns the workload's UID when it is of the kind and exists.
func (c *cluster) topOfKind(namespace string, r reference, kind string) types.UID {
	if r.kind != kind {
		return ""
	}
	var uid types.UID
	switch kind {
	case kindDeployment:
		if o, err := c.deployments.Deployments(namespace).Get(r.name); err == nil {
			uid = o.UID
		}
	case kindStatefulSet:
		if o, err := c.statefulSets.StatefulSets(namespace).Get(r.name); err == nil {
			uid = o.UID
		}
	case kindJob:
		if o, err := c.jobs.Jobs(namespace).Get(r.name); err == nil {
			uid = o.UID
		}
	case kindController:
		if o, err := c.controllers.ReplicationControllers(namespace).Get(r.name); err == nil {
			uid = o.UID
		}
	}
	if uid != r.uid {
		return ""
	}
	return uid
}

// ownersOf lists the top-level workloads that concern the policy: their template or a pod of theirs is selected.
func (s *Policies) ownersOf(e *entry) []policy.Owner {
	namespace := e.policy.Namespace()
	owning := map[types.UID]bool{}
	for controller := range e.pods.direct {
		owning[s.cluster.top(namespace, controller)] = true
	}
	var owners []policy.Owner
	add := func(w metav1.Object) {
		o, _ := policy.OwnerOf(w)
		o.OwnsSelected = owning[o.UID]
		if o.OwnsSelected || e.policy.Selects(o.TemplateLabels) {
			owners = append(owners, o)
		}
	}
	c := s.cluster
	// The listers of caches have no errors but for single objects.
	deployments, _ := c.deployments.Deployments(namespace).List(labels.Everything())
	for _, d := range deployments {
		add(d)
	}
	statefulSets, _ := c.statefulSets.StatefulSets(namespace).List(labels.Everything())
	for _, set := range statefulSets {
		add(set)
	}
	jobs, _ := c.jobs.Jobs(namespace).List(labels.Everything())
	for _, job := range jobs {
		add(job)
	}
	replicaSets, _ := c.replicaSets.ReplicaSets(namespace).List(labels.Everything())
	for _, set := range replicaSets {
		if controllerOf(set) == (reference{}) {
			add(set)
		}
	}
	controllers, _ := c.controllers.ReplicationControllers(namespace).List(labels.Everything())
	for _, rc := range controllers {
		if controllerOf(rc) == (reference{}) && rc.Spec.Template != nil {
			add(rc)
		}
	}
	return owners
}
