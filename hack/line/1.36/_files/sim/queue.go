package sim

import (
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// watchQueue has the Sim see whether a cycle has found a pod in the queue.
func (s *Sim) watchQueue() {
	s.scheduler.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := s.scheduler.SchedulingQueue.Pop(logger)
		s.popped = pod != nil
		return pod, err
	}
}
