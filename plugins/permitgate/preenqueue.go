package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// PreEnqueue keeps a member out of the queue until its gang calls it: until its PodGroup and minMember live members exist, and
// until it is the gang's scout or part of its round. It runs under the scheduling queue's lock and looks only at memory.
func (p *PermitGate) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	key, ok := podgroup.Of(pod)
	if !ok || pod.Spec.NodeName != "" {
		return nil
	}
	reason, detail := gang.ReasonNotFound, ""
	p.gangs.look(key, func(e *entry, now time.Time) {
		reason, detail = e.gang.Admit(pod.UID, now)
		if last := e.gang.Last(); reason == gang.ReasonBackoff && last.Cause == gang.CauseUnschedulable && last.Member == pod.UID {
			// The queue moves the member that fitted nowhere, because the plugins that refused it hope for something that has
			// changed.
			p.gangs.roomLocked(e, now)
		}
	})
	return p.refusal(key, reason, detail)
}

// refusal words why a member is refused as a status, nil when it is not. The code keeps preemption from being tried.
func (p *PermitGate) refusal(key types.NamespacedName, reason gang.Reason, detail string) *fwk.Status {
	if reason == gang.ReasonNone {
		return nil
	}
	if reason == gang.ReasonNotFound {
		_, detail = p.missing()
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "PodGroup "+key.String()+": "+detail)
}
