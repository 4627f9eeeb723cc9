package permitgate

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// EventsToRegister names the events after which a pod that this plugin refused may be schedulable: those about the pod
// itself.
//
// All other events (PodGroups, other members, room in the cluster) wake gangs through freedRoom and the worker, which
// activates members. If they were listed here, each would cost a look at every waiting member of every gang, under the
// scheduling queue's lock. PodGroups cannot be listed at all: the scheduler would wait for their informer, and would
// not schedule if the CRD is missing.
func (p *PermitGate) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		upstream.TargetPodEvent(fwk.UpdatePodLabel|fwk.UpdatePodSchedulingGatesEliminated, p.isSchedulableAfterOwnChange),
	}, nil
}

// isSchedulableAfterOwnChange is the hint for a change of the pod itself, which may have left its gang. It runs under
// the scheduling queue's lock.
func (p *PermitGate) isSchedulableAfterOwnChange(_ klog.Logger, pod *v1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	if changed, ok := newObj.(*v1.Pod); ok {
		pod = changed
	}
	id, ok := podgroup.Of(pod)
	if !ok {
		return fwk.Queue, nil
	}
	hint := fwk.QueueSkip
	p.gangs.read(id, func(e *gangEntry) {
		if reason, _ := e.gang.Refusal(pod.UID); reason == gang.ReasonNone {
			hint = fwk.Queue
		}
	})
	return hint, nil
}
