package sim

import (
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// watchQueue has the Sim see whether a cycle has found a pod in the queue.
func (s *Sim) watchQueue() {
	s.scheduler.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		entity, err := s.scheduler.SchedulingQueue.Pop(logger)
		s.popped = entity != nil
		return entity, err
	}
}
