package native

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/pods"
	"zonewise.dev/plugins/permitgate/barrier"
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
	g.step(pod, func(e *entry, now time.Time) {
		g.requeuedLocked(e, now)
		reason, detail, _ = e.gang.Enqueue(pod.UID, now)
	})
	return refusal(pod, reason, detail)
}

// Permit makes a member wait for the quorum.
func (g *Gangs) Permit(pod *v1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	wait, reason, detail := false, gang.ReasonNone, ""
	g.step(pod, func(e *entry, now time.Time) {
		g.placedLocked(e)
		if m := e.pods[pod.UID]; m != nil {
			m.node = nodeName
		}
		wait, reason, detail = e.gang.Permit(pod.UID, now)
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

// PreBind has a member wait at the barrier.
func (g *Gangs) PreBind(ctx context.Context, h fwk.Handle, pod *v1.Pod) *fwk.Status {
	key, _ := GroupOf(pod)
	var answer <-chan barrier.Answer
	g.step(pod, func(e *entry, now time.Time) { answer = e.barrier.Arrive(ctx, h, key, pod.UID, now) })
	if answer == nil {
		return nil // it is not guarded
	}
	return barrier.Wait(ctx, key, answer, func() {
		g.change(key, func(e *entry, _ time.Time) { e.barrier.Leave(pod.UID) })
	})
}

// PostBind records that a member has been bound.
func (g *Gangs) PostBind(pod *v1.Pod) {
	g.step(pod, func(e *entry, now time.Time) { e.gang.Bound(pod.UID, now) })
}

// Unreserve records that a member has lost its node.
func (g *Gangs) Unreserve(pod *v1.Pod) {
	g.step(pod, func(e *entry, now time.Time) {
		g.placedLocked(e)
		e.gang.Unreserved(pod.UID, now)
		if e.gang.KeepsNode(pod.UID) {
			e.kept[pod.UID] = struct{}{}
		}
	})
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
	return gang.Template{Controller: pods.ControllerUID(pod), Needs: proposal.Signature(pod)}
}
