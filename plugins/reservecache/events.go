package reservecache

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/upstream"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/serve"
)

// EventsToRegister names the events after which a pod that slots kept out may find room. Of each the hint does the
// arithmetic of one node. What is held changes without an event: then the plugin's worker activates pods.
//
// ZoneReservations are not among the events: the scheduler would wait for their informer and not schedule at all
// where the CustomResourceDefinition is missing.
func (p *ReserveCache) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A pod that left, or was assumed and lost its node again, leaves its room.
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

// podLeft queues a pod if it fits where another has left, or if the ledger has not heard of that yet: then earlier
// events may be missing too.
func (p *ReserveCache) podLeft(_ klog.Logger, pod *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	left, _ := oldObj.(*v1.Pod)
	now, _ := newObj.(*v1.Pod)
	if left == nil {
		left = now
	}
	if left == nil {
		return fwk.Queue, nil
	}
	l := p.running.ledger
	if known, there := l.GetPod(left.UID); there && (now == nil || known.Pod != now && known.Requests.Exceeds(requestsOf(l, now)) != "") {
		return fwk.Queue, nil
	}
	return p.fitsOn(left.Spec.NodeName, nil, pod), nil
}

func requestsOf(l *ledger.Ledger, pod *v1.Pod) *ledger.Resources {
	requests := l.Requests(pod)
	return &requests
}

func (p *ReserveCache) nodeGrew(_ klog.Logger, pod *v1.Pod, _, newObj any) (fwk.QueueingHint, error) {
	node, _ := newObj.(*v1.Node)
	if node == nil {
		return fwk.Queue, nil
	}
	return p.fitsOn(node.Name, node, pod), nil
}

// fitsOn reports whether a node, of which a newer version may be known, has room for a pod beside slots.
func (p *ReserveCache) fitsOn(nodeName string, newer *v1.Node, pod *v1.Pod) fwk.QueueingHint {
	r := p.running
	state, there := r.ledger.State(nodeName)
	if !there || pod.Status.NominatedNodeName == nodeName {
		return fwk.Queue // it is to come, or the room was made for the pod
	}
	if newer != nil {
		state.Allocatable = ledger.ResourcesOf(newer.Status.Allocatable)
	}
	claims := r.server.Claims()
	asked, _, ignores := r.floorPod(claims, pod)
	if ignores {
		return fwk.Queue
	}
	at := claims.At(r.ledger, nodeName, state)
	hint := fwk.QueueSkip
	r.floor.Read(func(f *floor.Floor, _ serve.Settled) {
		if hasRoom(f, &asked, &at) {
			hint = fwk.Queue
		}
	})
	return hint
}
