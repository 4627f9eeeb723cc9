package upstream

import fwk "k8s.io/kube-scheduler/framework"

// AssignedPodEvent registers a hint for changes of pods that have a node. The hint runs under the scheduling queue's
// lock.
func AssignedPodEvent(actions fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
	return fwk.ClusterEventWithHint{
		Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: actions}, QueueingHintFn: hint,
	}
}

// TargetPodEvent registers a hint for changes of the waiting pod itself. The hint runs under the scheduling queue's
// lock.
func TargetPodEvent(actions fwk.ActionType, hint fwk.QueueingHintFn) fwk.ClusterEventWithHint {
	return fwk.ClusterEventWithHint{
		Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: actions}, QueueingHintFn: hint,
	}
}
