package sim

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// watchQueue has the lane see what the scheduler takes from its queue.
func (l *lane) watchQueue() {
	pop := l.scheduler.NextEntity
	l.scheduler.NextEntity = func(logger klog.Logger) (framework.QueuedEntityInfo, error) {
		entity, err := pop(logger)
		pod, _ := entity.(*framework.QueuedPodInfo)
		l.pop(pod)
		return entity, err
	}
}

// knows reports whether a pod is in the scheduler's queue.
func (l *lane) knows(pod *v1.Pod) bool {
	_, ok := l.scheduler.SchedulingQueue.GetPod(context.Background(), pod.Name, pod.Namespace, nil)
	return ok
}
