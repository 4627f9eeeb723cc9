package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"zonewise.dev/internal/pods"
)

// This file stands for the controllers of pods: which of them replace a pod that is lost or evicted, when, and by what.

// ControllerKind returns the kind and group of a pod's controller, such as Job.batch; empty if it has none.
func ControllerKind(pod *v1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return ""
	}
	return schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind().String()
}

// The controllers of Kubernetes.
const (
	kindReplicaSet            = "ReplicaSet.apps"
	kindReplicationController = "ReplicationController"
	kindStatefulSet           = "StatefulSet.apps"
	kindJob                   = "Job.batch"
	kindDaemonSet             = "DaemonSet.apps"
	kindNode                  = "Node"
)

// NodeBound reports whether a pod is lost with its node: no controller replaces it elsewhere.
func NodeBound(pod *v1.Pod) bool {
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	kind := ControllerKind(pod)
	return kind == kindDaemonSet || kind == kindNode
}

// WhyNotReplaced says why no controller makes another pod in place of this one, if it is lost or evicted; empty if one
// does. Of a Job's pod that is lost already it says what has become of that loss. Controllers that are not Kubernetes'
// own do only if Options.Controllers names them.
func (s *Sim) WhyNotReplaced(pod *v1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return "no controller replaces it"
	case NodeBound(pod):
		return "it goes with its node"
	case isEndedPod(pod):
		return "it has ended"
	}
	var over client.Object
	switch kind := ControllerKind(pod); kind {
	case kindReplicaSet:
		over = controllerOf[*appsv1.ReplicaSet](s, pod, owner)
	case kindReplicationController:
		over = controllerOf[*v1.ReplicationController](s, pod, owner)
	case kindStatefulSet:
		over = controllerOf[*appsv1.StatefulSet](s, pod, owner)
	case kindJob:
		if job := controllerOf[*batchv1.Job](s, pod, owner); job != nil {
			return whyJobMakesNone(job.(*batchv1.Job), pod) //nolint:forcetypeassert // as the type argument says
		}
	default:
		if !slices.ContainsFunc(s.options.Controllers, func(known string) bool {
			return strings.EqualFold(known, kind)
		}) {
			return fmt.Sprintf("no controller is known to replace it: its owner is %s %s", kind, owner.Name)
		}
	}
	if over != nil && over.GetDeletionTimestamp() != nil {
		return fmt.Sprintf("its %s %s is being deleted", owner.Kind, owner.Name)
	}
	return ""
}

// controllerOf returns the object that controls a pod; nil if the copy does not have it, which then is thought to do
// its work.
func controllerOf[T client.Object](s *Sim, pod *v1.Pod, owner *metav1.OwnerReference) client.Object {
	if obj, ok := get[T](s.store, pod.Namespace+"/"+owner.Name); ok && obj.GetUID() == owner.UID {
		return obj
	}
	return nil
}

// whyJobMakesNone says why a Job makes no other pod. Its status counts the pods that have failed in the copy.
func whyJobMakesNone(job *batchv1.Job, pod *v1.Pod) string {
	switch {
	case job.DeletionTimestamp != nil:
		return fmt.Sprintf("its Job %s is being deleted", job.Name)
	case ptr.Deref(job.Spec.Suspend, false):
		return fmt.Sprintf("its Job %s is suspended", job.Name)
	}
	for _, c := range job.Status.Conditions {
		switch c.Type {
		case batchv1.JobComplete, batchv1.JobFailed, batchv1.JobFailureTarget, batchv1.JobSuccessCriteriaMet:
			if c.Status == v1.ConditionTrue {
				return fmt.Sprintf("its Job %s is over", job.Name)
			}
		}
	}
	switch onDisruption(job) {
	case batchv1.PodFailurePolicyActionFailJob, batchv1.PodFailurePolicyActionFailIndex:
		return fmt.Sprintf("its Job %s fails when a pod is disrupted (podFailurePolicy)", job.Name)
	case batchv1.PodFailurePolicyActionIgnore:
		return ""
	}
	if limit := job.Spec.BackoffLimitPerIndex; limit != nil {
		failed, _ := strconv.Atoi(pod.Annotations[batchv1.JobIndexFailureCountAnnotation]) // without it none has
		if int32(failed)+1 > *limit {                                                      //nolint:gosec // bounded by a limit of that size
			return fmt.Sprintf("its index of Job %s fails with it (backoffLimitPerIndex %d)", job.Name, *limit)
		}
		return ""
	}
	if limit := ptr.Deref(job.Spec.BackoffLimit, 6); job.Status.Failed > limit {
		return fmt.Sprintf(
			"its Job %s fails: %d of its pods have failed (backoffLimit %d)", job.Name, job.Status.Failed, limit,
		)
	}
	return ""
}

// onDisruption returns what a Job's policy does with a pod that a disruption ends; empty if it counts as failed.
func onDisruption(job *batchv1.Job) batchv1.PodFailurePolicyAction {
	if job.Spec.PodFailurePolicy == nil {
		return ""
	}
	for _, rule := range job.Spec.PodFailurePolicy.Rules {
		for _, c := range rule.OnPodConditions {
			if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
				if rule.Action == batchv1.PodFailurePolicyActionCount {
					return ""
				}
				return rule.Action
			}
		}
	}
	return ""
}

// countFailures adds pods that are lost or evicted to what has failed of their Jobs.
func (s *Sim) countFailures(lost ...*v1.Pod) {
	failed := map[string]int32{}
	for _, pod := range lost {
		if owner := metav1.GetControllerOf(pod); ControllerKind(pod) == kindJob && pods.Live(pod) {
			if job := controllerOf[*batchv1.Job](s, pod, owner); job != nil && onDisruption(job.(*batchv1.Job)) == "" { //nolint:forcetypeassert // as the type argument says
				failed[keyOf(job)]++
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(failed)) {
		_, _ = changeObject(s.store, key, func(job *batchv1.Job) error {
			job.Status.Failed += failed[key]
			return nil
		})
	}
}

// replacesAtOnce reports whether a pod's controller makes another one when this one begins to terminate, and not when
// it has ended.
func (s *Sim) replacesAtOnce(pod *v1.Pod) bool {
	switch ControllerKind(pod) {
	case kindStatefulSet: // the name is taken
		return false
	case kindJob:
		owner := metav1.GetControllerOf(pod)
		obj := controllerOf[*batchv1.Job](s, pod, owner)
		if obj == nil {
			return true
		}
		job := obj.(*batchv1.Job) //nolint:forcetypeassert // as the type argument says
		if policy := job.Spec.PodReplacementPolicy; policy != nil {
			return *policy != batchv1.Failed
		}
		return job.Spec.PodFailurePolicy == nil
	}
	return true
}

// replacement returns the pod by which its controller replaces one, nil if it does not.
func (s *Sim) replacement(pod *v1.Pod) *v1.Pod {
	if s.WhyNotReplaced(pod) != "" {
		return nil
	}
	made := s.newPodLike(pod)
	if ControllerKind(pod) != kindStatefulSet {
		s.mu.Lock()
		s.serial++
		made.Name = fmt.Sprintf("%s%05d", cmp.Or(pod.GenerateName, pod.Name+"-"), s.serial)
		s.mu.Unlock()
	}
	return made
}

// newPodLike returns a pod as it was before it got its node.
func (s *Sim) newPodLike(pod *v1.Pod) *v1.Pod {
	made := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, GenerateName: pod.GenerateName, Labels: pod.Labels,
		// It is given to pods, not to templates: the same for all would order none.
		Annotations:     without(pod.Annotations, v1.PodDeletionCost),
		OwnerReferences: pod.OwnerReferences, CreationTimestamp: metav1.Time{Time: s.clock.Now()},
	}, Spec: pod.Spec} // what both have in common is shared: it never changes
	s.store.mu.Lock()
	s.store.stampLocked(made)
	s.store.mu.Unlock()
	if node, ok := get[*v1.Node](s.store, pod.Spec.NodeName); ok || pod.Spec.NodeName != "" {
		for _, label := range topologyLabels {
			// The template has no such label, unless it says something else than the node did.
			if node == nil || node.Labels[label] == made.Labels[label] {
				made.Labels = without(made.Labels, label)
			}
		}
	}
	made.Spec.NodeName, made.Spec.EphemeralContainers = "", nil
	made.Status = v1.PodStatus{Phase: v1.PodPending, QOSClass: pod.Status.QOSClass}
	return made
}

// createReplacement creates a pod that replaces one, with its own claims.
func (s *Sim) createReplacement(pod, replaced *v1.Pod) {
	s.makeClaims(pod)
	if err := s.store.create(pod); err != nil {
		return // one of this name is there already
	}
	s.mu.Lock()
	s.replaced[pod.UID] = replaced
	s.mu.Unlock()
	s.noteProgress()
}

// Replaced returns the pods that controllers have replaced, by the UIDs of those that they have made instead.
func (s *Sim) Replaced() map[types.UID]*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.replaced)
}
