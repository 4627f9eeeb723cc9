package reservecache

import (
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

func (h *handle) NominatedPodsForNode(klog.Logger, string) []fwk.PodInfo { return nil }

func (s *cycleState) GetPodGroupCycleState() fwk.PodGroupCycleState { return nil }
