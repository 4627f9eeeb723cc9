package simulate

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/schedulingv1/workloadbuilder"
	jobutil "k8s.io/kubernetes/pkg/api/job"
	"k8s.io/utils/ptr"

	"zonewise.dev/sim/kinds"
)

// This file has the gangs of Kubernetes' own API that a file of manifests has: PodGroups of scheduling.k8s.io, and Jobs
// whose controller makes one.

// applyNativeGroup adds a PodGroup for each copy, with the priority that the API server gives it.
func (p *parser) applyNativeGroup(group *kinds.NativePodGroup) error {
	if !p.admission.snapshot.Has(kinds.NativePodGroups) {
		p.leaveOut(fmt.Sprintf("PodGroup %s/%s is left out: the cluster has no PodGroups of scheduling.k8s.io, or they could not be read", group.Namespace, group.Name))
		return nil
	}
	priority, policy, err := p.admission.priority(&corev1.PodSpec{Priority: group.Spec.Priority, PriorityClassName: group.Spec.PriorityClassName})
	if err != nil {
		return fmt.Errorf("PodGroup %s: %w", group.Name, err)
	}
	group.Spec.Priority = priority
	if policy != nil && keepsGroupPreemptionPolicy() {
		group.Spec.PreemptionPolicy = (*schedulingv1beta1.PreemptionPolicy)(policy)
	}
	if p.copies == 1 {
		p.putObject(group)
		return nil
	}
	for i := range p.copies {
		added := group.DeepCopy()
		added.Name, added.UID, added.Generation = copyName(group.Name, i, p.copies), p.nextUID(), 1
		p.workload.others = append(p.workload.others, added)
	}
	return nil
}

// applyJobGroup adds the PodGroup that the Job controller makes for a Job with spec.scheduling, and has the template
// name it. Without a gang policy the group makes no difference, and is left out.
func (p *parser) applyJobGroup(job *batchv1.Job) error {
	if job.Spec.Scheduling == nil || job.Spec.Template.Spec.SchedulingGroup != nil || metav1.GetControllerOf(job) != nil {
		return nil
	}
	if !p.admission.snapshot.Has(kinds.NativePodGroups) {
		p.leaveOut(fmt.Sprintf("spec.scheduling of Job %s/%s is left out: the cluster has no PodGroups of scheduling.k8s.io, or they could not be read", job.Namespace, job.Name))
		return nil
	}
	if len(job.Spec.Scheduling.ResourceClaims) > 0 {
		p.leaveOut(fmt.Sprintf("spec.scheduling.resourceClaims of Job %s/%s are left out", job.Namespace, job.Name))
	}
	spec := &job.Spec.Template.Spec
	item := jobutil.WorkloadItemForJob(job.Name, spec.PriorityClassName, job.Spec.Parallelism, jobutil.WorkloadInputForJobV1(job.Spec.Scheduling), nil)
	builder := workloadbuilder.NewBuilder(item, workloadbuilder.BuildOptions{
		Name: job.Name, Namespace: job.Namespace, Owner: metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job")),
	})
	workload, err := builder.BuildWorkload()
	if err != nil {
		return fmt.Errorf("spec.scheduling of Job %s: %w", job.Name, err)
	}
	if workload.Spec.PodGroupTemplates[0].SchedulingPolicy.Gang == nil {
		return nil
	}
	group, err := builder.NewPodGroup(job.Name+"-simulated", job.Name)
	if err != nil {
		return fmt.Errorf("spec.scheduling of Job %s: %w", job.Name, err)
	}
	group.UID, group.Spec.ResourceClaims = p.nextUID(), nil
	spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(group.Name)}
	return p.applyNativeGroup(group)
}
