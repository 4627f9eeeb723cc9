package policy

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// OwnerOf reads what a workload wants: a Deployment, ReplicaSet, StatefulSet, Job or ReplicationController; ok is false
// for anything else. Whether the workload is a top-level one, and owns selected pods, the caller knows.
func OwnerOf(object metav1.Object) (owner Owner, ok bool) {
	owner.UID = object.GetUID()
	switch w := object.(type) {
	case *appsv1.Deployment:
		replicas := valueOr(w.Spec.Replicas, 1)
		owner.TemplateLabels, owner.Replicas, owner.ReplaceFirst = w.Spec.Template.Labels, int64(replicas), surgesFirst(&w.Spec.Strategy, replicas)
	case *appsv1.ReplicaSet:
		owner.TemplateLabels, owner.Replicas = w.Spec.Template.Labels, int64(valueOr(w.Spec.Replicas, 1))
	case *appsv1.StatefulSet:
		owner.TemplateLabels, owner.Replicas = w.Spec.Template.Labels, int64(valueOr(w.Spec.Replicas, 1))
	case *batchv1.Job:
		owner.TemplateLabels, owner.Replicas = w.Spec.Template.Labels, JobReplicas(w)
	case *v1.ReplicationController:
		owner.Replicas = int64(valueOr(w.Spec.Replicas, 1))
		if w.Spec.Template != nil {
			owner.TemplateLabels = w.Spec.Template.Labels
		}
	default:
		return Owner{}, false
	}
	return owner, true
}

// JobReplicas is how many pods a Job wants now: none when it is suspended or has ended, be it well or not; else its
// parallelism, and no more than the completions that are still missing.
func JobReplicas(job *batchv1.Job) int64 {
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

// surgesFirst tells whether a rolling update takes no old pod away before a new one is ready: maxUnavailable comes to
// 0. When maxSurge comes to 0 as well, the controller takes one away, since it could not move otherwise.
func surgesFirst(s *appsv1.DeploymentStrategy, replicas int32) bool {
	if s.Type == appsv1.RecreateDeploymentStrategyType {
		return false
	}
	quarter := intstr.FromString("25%")
	unavailable, surge := quarter, quarter
	if r := s.RollingUpdate; r != nil {
		unavailable, surge = valueOr(r.MaxUnavailable, quarter), valueOr(r.MaxSurge, quarter)
	}
	down, err1 := intstr.GetScaledValueFromIntOrPercent(&unavailable, int(replicas), false)
	up, err2 := intstr.GetScaledValueFromIntOrPercent(&surge, int(replicas), true)
	return err1 == nil && err2 == nil && down == 0 && up > 0
}

// valueOr is what a field means that may be left out.
func valueOr[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
