package upstream

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// PatchPodCondition has kube-scheduler's cacher of API calls give a pod a condition. The channel ends with the result
// of the call.
func PatchPodCondition(cacher fwk.APICacher, pod *v1.Pod, condition *v1.PodCondition) (<-chan error, error) {
	return cacher.PatchPodStatus(pod, []*v1.PodCondition{condition}, nil)
}
