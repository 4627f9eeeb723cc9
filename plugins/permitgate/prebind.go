package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// PreBindPreFlight says that members have something to do before they are bound, and other pods have not.
func (*PermitGate) PreBindPreFlight(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) (*fwk.PreBindPreFlightResult, *fwk.Status) {
	if _, ok := gangOf(pod); !ok || state.IsPodGroupSchedulingCycle() {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

// PreBind is the barrier: a member waits until the quorum has been prepared for its binds, and nothing can
// stop them any more. It returns early when ctx ends, and that is what a preemptor does to its victim. The
// plugin must be the last at this extension point, or what comes behind it may still fail.
func (p *PermitGate) PreBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ string) *fwk.Status {
	key, ok := gangOf(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return nil
	}
	answer := make(chan verdict, 1)
	p.shared.change(key, func(e *entry, now time.Time) {
		e.gang.Arrive(pod.UID, now)
		if arrival, detail := e.gang.Verdict(pod.UID); arrival != gang.ArrivalWait {
			answer <- verdict{arrival, detail}
			return
		}
		e.barrier[pod.UID] = answer
	})
	select {
	case v := <-answer:
		return v.status(key)
	case <-ctx.Done():
	}
	p.shared.change(key, func(e *entry, _ time.Time) { delete(e.barrier, pod.UID) })
	select {
	case v := <-answer:
		// The commit was faster: nobody can have stopped the pod since, but the scheduler itself.
		return v.status(key)
	default:
	}
	// Unreserve tells the gang.
	return fwk.AsStatus(context.Cause(ctx))
}

// verdict is what becomes of a member at the barrier.
type verdict struct {
	arrival gang.Arrival
	detail  string
}

func (v verdict) status(key types.NamespacedName) *fwk.Status {
	if v.arrival == gang.ArrivalPass {
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, "PodGroup "+key.String()+": "+v.detail)
}

// answerBarrier tells those at the barrier for whom the gang has decided. The channels have room for the
// one answer that each gets.
func (e *entry) answerBarrier() {
	departures := e.gang.Departures()
	if departures == e.departures {
		return
	}
	e.departures = departures
	for uid, answer := range e.barrier {
		if arrival, detail := e.gang.Verdict(uid); arrival != gang.ArrivalWait {
			answer <- verdict{arrival, detail}
			delete(e.barrier, uid)
		}
	}
}

// commit makes the binds of the members at the barrier certain. From MarkPrebound on nobody can stop a
// pod's binding cycle; it fails for a pod that has been stopped before.
func (s *Shared) commit(logger klog.Logger, key types.NamespacedName, members []waiter) {
	var sure, lost []types.UID
	for _, w := range members {
		if preparing := w.handle.GetPodInPreBind(w.uid); preparing != nil && preparing.MarkPrebound() {
			sure = append(sure, w.uid)
		} else {
			lost = append(lost, w.uid)
		}
	}
	s.change(key, func(e *entry, now time.Time) { e.gang.Commit(sure, lost, now) })
	logger.V(3).Info("Gang at the barrier", "ready", len(sure), "stopped", len(lost))
}
