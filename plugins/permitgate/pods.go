package permitgate

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name is the name of the plugin in the registry and in KubeSchedulerConfiguration.
const Name = "PermitGate"

// nominee is a pod as the framework's nominator takes it, of which it needs no more than the pod.
type nominee struct {
	fwk.PodInfo
	pod *v1.Pod
}

// GetPod implements fwk.PodInfo.
func (n nominee) GetPod() *v1.Pod { return n.pod }
