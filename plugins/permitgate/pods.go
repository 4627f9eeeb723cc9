package permitgate

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// Name is the name of the plugin in the registry and in KubeSchedulerConfiguration.
const Name = "PermitGate"

// nominee is a pod for the framework's nominator, which uses only GetPod.
type nominee struct {
	fwk.PodInfo
	pod *v1.Pod
}

// GetPod implements fwk.PodInfo.
func (n nominee) GetPod() *v1.Pod { return n.pod }
