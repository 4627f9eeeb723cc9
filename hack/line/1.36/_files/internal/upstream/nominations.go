package upstream

import (
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// KeepNomination has the scheduler keep a node for the pod that is nominated to it in the API. Kubernetes 1.36 forgets,
// at its start, the nominations of pods that PreEnqueue keeps back. It is called without locks.
func KeepNomination(logger klog.Logger, nominator fwk.PodNominator, pod fwk.PodInfo) {
	nominator.AddNominatedPod(logger, pod, nil)
}

// NominatedTo returns the pods that are nominated to a node.
func NominatedTo(nominator fwk.PodNominator, node string) []fwk.PodInfo {
	return nominator.NominatedPodsForNode(node)
}
