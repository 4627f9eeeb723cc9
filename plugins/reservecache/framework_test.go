package reservecache

import fwk "k8s.io/kube-scheduler/framework"

func (h *handle) NominatedPodsForNode(string) []fwk.PodInfo { return nil }

func (s *cycleState) GetPodGroupSchedulingCycle() fwk.PodGroupCycleState { return nil }
