package sim

import (
	"context"

	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
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

// RunPodGroupPostFilterPlugins implements framework.Framework, as RunPostFilterPlugins does for a pod.
func (p *profile) RunPodGroupPostFilterPlugins(
	ctx context.Context, state *framework.CycleState, group fwk.PodGroupInfo, schedule fwk.PodGroupSchedulingFunc,
) (*fwk.PodGroupPostFilterResult, *fwk.Status) {
	result, status := p.Framework.RunPodGroupPostFilterPlugins(ctx, state, group, schedule)
	if status.IsSuccess() && group.GetPodGroup() != nil {
		p.sim.inFlight.preempts(group.GetPodGroup().UID)
	}
	return result, status
}
