package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister names the events after which a pod that holds kept out may find room. ZoneReservations are not among
// them, since the scheduler would wait for their informer and not schedule at all where the CRD is missing: whoever changes
// or drops a hold activates the pods that it kept out.
func (*ReserveCache) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{
			// A pod that left, or was assumed and lost its node again, leaves its room or a slot.
			Event:          fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete | fwk.UpdatePodScaleDown},
			QueueingHintFn: queue,
		},
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: queue,
		},
		{
			// It asks for less, or its labels make it an owner of other slots.
			Event:          fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.UpdatePodLabel | fwk.UpdatePodScaleDown},
			QueueingHintFn: queue,
		},
	}, nil
}

// queue queues the pod whatever has happened: any room may be what it lacks.
func queue(klog.Logger, *v1.Pod, any, any) (fwk.QueueingHint, error) { return fwk.Queue, nil }
