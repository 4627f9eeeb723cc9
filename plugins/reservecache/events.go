package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
)

// EventsToRegister names the events after which a pod that holds kept out may find room. Pods are woken by the
// plugin's worker, as many as the room could take, and not by these events, which would queue all of them. What is
// left for the events are pods that were woken before the scheduler itself had heard of the room, and pods for which
// it was made: they are nominated.
//
// ZoneReservations are not among the events: the scheduler would wait for their informer and not schedule at all
// where the CustomResourceDefinition is missing.
func (p *ReserveCache) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A pod that left, or was assumed and lost its node again, leaves its room or a slot.
		upstream.AssignedPodEvent(fwk.Delete|fwk.UpdatePodScaleDown, p.podLeft),
		{
			Event:          fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAllocatable},
			QueueingHintFn: p.nodeGrew,
		},
		// It asks for less, or its labels make it an owner of other slots.
		upstream.TargetPodEvent(fwk.UpdatePodLabel|fwk.UpdatePodScaleDown, func(klog.Logger, *v1.Pod, any, any) (fwk.QueueingHint, error) {
			return fwk.Queue, nil
		}),
	}, nil
}

func (p *ReserveCache) podLeft(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	left, _ := oldObj.(*v1.Pod)
	if left == nil {
		left, _ = newObj.(*v1.Pod)
	}
	if left == nil {
		return fwk.Queue, nil
	}
	return p.roomOn(left.Spec.NodeName, pod), nil
}

func (p *ReserveCache) nodeGrew(_ klog.Logger, pod *v1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	node, _ := newObj.(*v1.Node)
	if node == nil {
		return fwk.Queue, nil
	}
	return p.roomOn(node.Name, pod), nil
}

// roomOn says whether room on a node is for a pod.
func (p *ReserveCache) roomOn(node string, pod *v1.Pod) fwk.QueueingHint {
	if pod.Status.NominatedNodeName == node || p.running.waiting.Waits(pod.UID, node) {
		return fwk.Queue
	}
	return fwk.QueueSkip
}
