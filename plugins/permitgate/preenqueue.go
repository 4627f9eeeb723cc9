package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// PreEnqueue keeps a member out of the queue until its PodGroup and minMember live members exist, and it is the gang's
// scout or part of its round. It runs under the scheduling queue's lock and looks only at memory.
func (p *PermitGate) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	id, ok := podgroup.IDOf(pod)
	if !ok || pod.Spec.NodeName != "" {
		return nil
	}
	if id.Native {
		return p.enqueueNative(id, pod)
	}
	reason, detail := gang.ReasonNotFound, ""
	p.gangs.update(id, func(e *gangEntry, now time.Time) {
		var failed bool
		reason, detail, failed = e.gang.Enqueue(pod.UID, now)
		if failed {
			p.gangs.agenda.Add(id)
			return
		}
		if last := e.gang.LastRollback(); reason == gang.ReasonBackoff && last.Cause == gang.CauseCycleFailed && last.Member == pod.UID {
			e.gang.Changed(now)
			p.gangs.agenda.Add(id)
		}
	})
	return p.gangs.refusal(id, reason, detail)
}
