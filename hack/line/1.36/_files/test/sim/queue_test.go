package sim

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// watchQueue has the lane see what the scheduler takes from its queue.
func (l *lane) watchQueue() {
	pop := l.scheduler.NextPod
	l.scheduler.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		pod, err := pop(logger)
		l.pop(pod)
		return pod, err
	}
}

// knows reports whether a pod is in the scheduler's queue.
func (l *lane) knows(pod *v1.Pod) bool {
	_, ok := l.scheduler.SchedulingQueue.GetPod(pod.Name, pod.Namespace)
	return ok
}
