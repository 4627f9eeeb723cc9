package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// permitSlack is how much longer the framework lets a member wait than the gang does, so that the gang's
// own timeout, which knows why, comes first.
const permitSlack = 5 * time.Second

// Reserve takes nothing: the plugin is a Reserve plugin for Unreserve's sake.
func (*PermitGate) Reserve(context.Context, fwk.CycleState, *v1.Pod, string) *fwk.Status { return nil }

// Unreserve hears that a member lost the node that it was given: it was sent back from Permit, refused
// by another plugin, or could not be bound. In a pod-group cycle it is a rehearsal's end and means nothing.
func (p *PermitGate) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	key, ok := gangOf(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return
	}
	p.shared.change(key, func(e *entry, now time.Time) {
		e.gang.Unreserved(pod.UID, now)
		p.shared.checkNominationLocked(e, pod.UID)
	})
}

// Permit makes a member wait for the quorum. The member that completes it waits like the others: the
// worker lets all go together, once it has seen that nothing else keeps any of them.
func (p *PermitGate) Permit(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) (*fwk.Status, time.Duration) {
	key, ok := gangOf(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return nil, 0
	}
	var (
		a        answer
		wait     bool
		deadline time.Time
		left     time.Duration
	)
	p.shared.change(key, func(e *entry, now time.Time) {
		e.nodes[pod.UID] = nodeName
		wait, deadline, a.reason, a.detail = e.gang.Fits(pod.UID, now)
		left = deadline.Sub(now)
	})
	if a.reason == gang.ReasonNotFound {
		a = p.shared.missing()
	}
	if status := refusal(key, a); status != nil {
		return status, 0
	}
	if wait {
		return fwk.NewStatus(fwk.Wait, "PodGroup "+key.String()+": waits for the other members"), left + permitSlack
	}
	return nil, 0
}

// PostBind hears that a member has been bound.
func (p *PermitGate) PostBind(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	key, ok := gangOf(pod)
	if !ok || state.IsPodGroupSchedulingCycle() {
		return
	}
	p.shared.change(key, func(e *entry, now time.Time) { e.gang.Bound(pod.UID, now) })
}
