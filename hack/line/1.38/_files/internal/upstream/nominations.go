package upstream

import (
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// KeepNomination has the scheduler keep a node for the pod that is nominated to it in the API. It does so by itself.
func KeepNomination(klog.Logger, fwk.PodNominator, fwk.PodInfo) {}

// NominatedTo returns the pods that are nominated to a node.
func NominatedTo(nominator fwk.PodNominator, node string) []fwk.PodInfo {
	return nominator.NominatedPodsForNode(klog.Background(), node)
}
