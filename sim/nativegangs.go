package sim

import (
	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/native"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/sim/kinds"
)

// This file has what a copy needs for gangs of Kubernetes' own API, which the scheduler places in one cycle of the
// whole group.

// SetFeatureGates sets the feature gates of the process as the scheduler's flag of that name does. How configurations
// are read and what schedulers do depends on them, so they are set once, before either. GenericWorkload is on unless
// the flag says otherwise: it makes a difference only to pods that name a PodGroup of scheduling.k8s.io, and where the
// API server does not have these no pod does.
func SetFeatureGates(flag string) error {
	gates := utilfeature.DefaultMutableFeatureGate
	if _, known := gates.GetAll()[native.Feature]; known {
		flag = native.Feature + "=true," + flag
	}
	if err := gates.DeepCopy().Set(flag); err != nil { // gates keep what they have refused
		return err
	}
	return gates.Set(flag)
}

// gangOf returns the name of a pod's PodGroup, of either API, empty without one.
func gangOf(pod *v1.Pod) string {
	if pod.Spec.SchedulingGroup != nil {
		return nativeGangOf(pod)
	}
	return pod.Labels[schedulingv1alpha1.PodGroupLabel]
}

// nativeGangOf returns the name of a pod's PodGroup of scheduling.k8s.io, empty without one.
func nativeGangOf(pod *v1.Pod) string {
	group, _ := podgroup.NativeOf(pod)
	return group.Name
}

// withoutGroup returns a pod as an API server keeps it that does not have PodGroups of scheduling.k8s.io.
func withoutGroup(pod *v1.Pod) *v1.Pod {
	single := *pod
	single.Spec.SchedulingGroup = nil
	return &single
}

// hasNativeGroups reports whether the cluster has PodGroups of scheduling.k8s.io.
func (s *store) hasNativeGroups() bool {
	for _, k := range s.order {
		if k.resource.String() == kinds.NativePodGroups {
			return k.served
		}
	}
	return false
}

// retryGroups has groups that found no place tried again if anything has happened since. In a cluster they are
// tried whenever their backoff is over, and no event ends it.
func (s *Sim) retryGroups(members []*v1.Pod) (retried bool) {
	s.mu.Lock()
	happened := s.happened
	s.mu.Unlock()
	if len(members) == 0 || s.groupsTried == happened {
		return false
	}
	s.groupsTried = happened
	s.scheduler.SchedulingQueue.Activate(klog.Logger{}, podsByKey(members))
	return true
}
