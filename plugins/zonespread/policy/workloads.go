package policy

import (
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
)

// Workload is the top-level owner of pods: a Deployment or Rollout rather than its ReplicaSets, which start small and
// end empty; a StatefulSet; a Job; a ReplicaSet or ReplicationController without a controller. The zero Workload is one
// that is not known.
type Workload struct {
	UID types.UID
	// Name is for messages, as in "Deployment web".
	Name string
	// Replicas is how many pods it wants when Known: spec.replicas; of a Job the smaller of parallelism and the
	// completions that are still missing.
	Replicas int64
	Known    bool
	// Selector selects its pods, of all revisions; nil when it is not known.
	Selector labels.Selector
}

// WorkloadOf returns the top-level workload that a ReplicaSet, StatefulSet, Job or ReplicationController is, or that a
// ReplicaSet belongs to; the zero Workload of anything else.
func WorkloadOf(object metav1.Object) (w Workload) {
	var kind string
	var selector *metav1.LabelSelector
	switch o := object.(type) {
	case *appsv1.ReplicaSet:
		if over := metav1.GetControllerOfNoCopy(o); over != nil {
			return behindReplicaSet(o, over)
		}
		kind, selector, w.Replicas = "ReplicaSet", o.Spec.Selector, int64(valueOr(o.Spec.Replicas, 1))
	case *appsv1.StatefulSet:
		kind, selector, w.Replicas = "StatefulSet", o.Spec.Selector, int64(valueOr(o.Spec.Replicas, 1))
	case *batchv1.Job:
		kind, selector, w.Replicas = "Job", o.Spec.Selector, jobReplicas(o)
	case *v1.ReplicationController:
		kind, w.Replicas = "ReplicationController", int64(valueOr(o.Spec.Replicas, 1))
		selector = &metav1.LabelSelector{MatchLabels: o.Spec.Selector}
	default:
		return Workload{}
	}
	w.UID, w.Name, w.Selector, w.Known = object.GetUID(), kind+" "+object.GetName(), podSelector(selector), true
	return w
}

// The annotations in which what controls ReplicaSets notes its own replicas on them: the Deployment controller and that
// of Argo Rollouts.
const (
	deploymentReplicas = "deployment.kubernetes.io/desired-replicas"
	rolloutReplicas    = "rollout.argoproj.io/desired-replicas"
)

// behindReplicaSet returns what a ReplicaSet says about its Deployment or Rollout. The controller writes the annotation
// with every size that it gives a ReplicaSet, so that what it says is never older than the pods.
func behindReplicaSet(set *appsv1.ReplicaSet, over *metav1.OwnerReference) Workload {
	var desired, revision string
	switch over.Kind {
	case "Deployment":
		desired, revision = set.Annotations[deploymentReplicas], appsv1.DefaultDeploymentUniqueLabelKey
	case "Rollout":
		desired, revision = set.Annotations[rolloutReplicas], v1alpha1.RolloutsPodTemplateHash
	default:
		return Workload{}
	}
	w := Workload{UID: over.UID, Name: over.Kind + " " + over.Name}
	if all := podSelector(set.Spec.Selector); all != nil {
		requirements, _ := all.Requirements()
		kept := slices.DeleteFunc(requirements,
			func(r labels.Requirement) bool { return r.Key() == revision })
		if len(kept) > 0 {
			w.Selector = labels.NewSelector().Add(kept...)
		}
	}
	if n, err := strconv.ParseInt(desired, 10, 32); err == nil && n >= 0 {
		w.Replicas, w.Known = n, true
	}
	return w
}

// podSelector returns nil for a selector that is missing, empty or malformed, none of which a workload in an API server
// has.
func podSelector(s *metav1.LabelSelector) labels.Selector {
	if s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
		return nil
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	return selector
}

// jobReplicas is how many pods a Job wants now: 0 if it is suspended or has ended; else its parallelism, but not
// more than the missing completions.
func jobReplicas(job *batchv1.Job) int64 {
	if valueOr(job.Spec.Suspend, false) || job.Status.CompletionTime != nil {
		return 0
	}
	for i := range job.Status.Conditions {
		if c := &job.Status.Conditions[i]; c.Type == batchv1.JobFailed && c.Status == v1.ConditionTrue {
			return 0
		}
	}
	wanted := int64(valueOr(job.Spec.Parallelism, 1))
	if job.Spec.Completions != nil {
		wanted = min(wanted, int64(*job.Spec.Completions-job.Status.Succeeded))
	}
	return max(0, wanted)
}

// valueOr is what a field means that may be left out.
func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
