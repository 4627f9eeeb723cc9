package native

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
	"zonewise.dev/plugins/permitgate/proposal"
)

// Has reports whether the pod may be a member of a native gang, for which the other methods are to be called. Outside of them a pod-group
// cycle is kube-scheduler's affair.
func (g *Gangs) Has(pod *v1.Pod) bool {
	if g == nil {
		return false
	}
	_, ok := GroupOf(pod)
	return ok
}

// PreEnqueue keeps a member out of the queue from the moment that one has lost its node until all are back.
func (g *Gangs) PreEnqueue(pod *v1.Pod) *fwk.Status {
	reason, detail := gang.ReasonNone, ""
	g.step(pod, func(e *entry, now time.Time) { reason, detail, _ = e.gang.Enqueue(pod.UID, now) })
	return refusal(pod, reason, detail)
}

// Permit makes a member wait for the quorum.
func (g *Gangs) Permit(pod *v1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	wait, reason, detail := false, gang.ReasonNone, ""
	g.step(pod, func(e *entry, now time.Time) {
		if m := e.pods[pod.UID]; m != nil {
			m.node = nodeName
		}
		wait, reason, detail = e.gang.Fits(pod.UID, now)
	})
	if status := refusal(pod, reason, detail); status != nil {
		return status, 0
	}
	if wait {
		return fwk.NewStatus(fwk.Wait, prefix(pod)+"waits for the other members"), podgroup.MaxTimeout
	}
	return nil, 0
}

// PreBindPreFlight returns Skip for pods that are not guarded.
func (g *Gangs) PreBindPreFlight(pod *v1.Pod) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	status := fwk.NewStatus(fwk.Skip)
	g.step(pod, func(*entry, time.Time) { status = nil })
	return nil, status
}

// PreBind is the barrier: a member waits until a quorum has been prepared and nothing can stop its binds any more. It returns early when
// ctx ends, which is how a preemptor stops its victim.
func (g *Gangs) PreBind(ctx context.Context, h fwk.Handle, pod *v1.Pod) *fwk.Status {
	answer := make(chan verdict, 1)
	guarded := false
	g.step(pod, func(e *entry, now time.Time) {
		guarded = true
		if members := e.gang.Arrive(pod.UID, now); len(members) > 0 {
			e.commit(ctx, h, members, now)
		}
		if arrival, detail := e.gang.Verdict(pod.UID); arrival != gang.ArrivalWait {
			answer <- verdict{arrival, detail}
			return
		}
		e.barrier[pod.UID] = answer
	})
	if !guarded {
		return nil
	}
	select {
	case v := <-answer:
		return v.status(pod)
	case <-ctx.Done():
	}
	key, _ := GroupOf(pod)
	g.change(key, func(e *entry, _ time.Time) { delete(e.barrier, pod.UID) })
	select {
	case v := <-answer:
		return v.status(pod) // it was faster; since then only the end of the scheduler can have stopped the pod
	default:
	}
	return fwk.AsStatus(context.Cause(ctx)) // Unreserve tells the gang
}

// commit marks the members at the barrier once the last has arrived. After MarkPrebound no preemptor can stop a pod's binding cycle.
func (e *entry) commit(ctx context.Context, h fwk.Handle, members []types.UID, now time.Time) {
	var sure, lost []types.UID
	for _, uid := range members {
		if preparing := h.GetPodInPreBind(uid); preparing != nil && preparing.MarkPrebound() {
			sure = append(sure, uid)
		} else {
			lost = append(lost, uid)
		}
	}
	e.gang.Commit(sure, lost, now)
	klog.FromContext(ctx).V(3).Info("Native gang at the barrier", "podGroup", e.key, "ready", len(sure), "stopped", len(lost))
}

// PostBind records that a member has been bound.
func (g *Gangs) PostBind(pod *v1.Pod) {
	g.step(pod, func(e *entry, now time.Time) { e.gang.Bound(pod.UID, now) })
}

// Unreserve records that a member has lost its node.
func (g *Gangs) Unreserve(pod *v1.Pod) {
	g.step(pod, func(e *entry, now time.Time) {
		e.gang.Unreserved(pod.UID, now)
		if e.gang.KeepsNode(pod.UID) {
			e.kept[pod.UID] = struct{}{}
		}
	})
}

// verdict is the answer to a member at the barrier.
type verdict struct {
	arrival gang.Arrival
	detail  string
}

func (v verdict) status(pod *v1.Pod) *fwk.Status {
	if v.arrival == gang.ArrivalPass {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, prefix(pod)+v.detail)
}

// answerBarrier answers the members at the barrier for which the gang has decided. Each channel has room for its one answer.
func (e *entry) answerBarrier() {
	departures := e.gang.Departures()
	if departures == e.answered {
		return
	}
	e.answered = departures
	for uid, answer := range e.barrier {
		if arrival, detail := e.gang.Verdict(uid); arrival != gang.ArrivalWait {
			answer <- verdict{arrival, detail}
			delete(e.barrier, uid)
		}
	}
}

// refusal returns the status for a reason, nil for none. Its code prevents preemption.
func refusal(pod *v1.Pod, reason gang.Reason, detail string) *fwk.Status {
	if reason == gang.ReasonNone {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, prefix(pod)+detail)
}

func prefix(pod *v1.Pod) string {
	key, _ := GroupOf(pod)
	return "PodGroup " + key.String() + ": "
}

// templateOf tells which pods are copies of each other: those of the same controller that ask for the same.
func templateOf(pod *v1.Pod) gang.Template {
	t := gang.Template{Needs: proposal.Signature(pod)}
	if controller := metav1.GetControllerOfNoCopy(pod); controller != nil {
		t.Controller = controller.UID
	}
	return t
}
