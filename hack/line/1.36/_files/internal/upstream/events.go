package upstream

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// AssignedPodEvent registers a hint for changes of pods that have a node. The hint runs under the scheduling queue's
// lock.
//
// Kubernetes 1.36 has one resource for all events of pods. The hint hears of those that have a node, or are nominated
// to one: the scheduler tells of the end of these in the same way.
func AssignedPodEvent(actions fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
	return podEvent(actions, func(logger klog.Logger, pod *v1.Pod, before, after any) (fwk.QueueingHint, error) {
		if changed := eitherPod(before, after); changed != nil && changed.Spec.NodeName == "" && changed.Status.NominatedNodeName == "" {
			return fwk.QueueSkip, nil
		}
		return hint(logger, pod, before, after)
	})
}

// TargetPodEvent registers a hint for changes of the waiting pod itself. The hint runs under the scheduling queue's
// lock.
func TargetPodEvent(actions fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
	return podEvent(actions, func(logger klog.Logger, pod *v1.Pod, before, after any) (fwk.QueueingHint, error) {
		if changed := eitherPod(before, after); changed != nil && changed.UID != pod.UID {
			return fwk.QueueSkip, nil
		}
		return hint(logger, pod, before, after)
	})
}

func podEvent(actions fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
	return fwk.ClusterEventWithHint{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: actions}, QueueingHintFn: hint}
}

// eitherPod returns the pod of an event as it is, or as it was if it is gone; nil if the event has none.
func eitherPod(before, after any) *v1.Pod {
	for _, object := range []any{after, before} {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if pod, ok := object.(*v1.Pod); ok && pod != nil {
			return pod
		}
	}
	return nil
}
