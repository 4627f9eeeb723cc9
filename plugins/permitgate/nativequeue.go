package permitgate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// enqueueNative is PreEnqueue for a member of a native gang. kube-scheduler asks for all members of a group, so that
// the gang sees who is back before it lets them in.
func (p *PermitGate) enqueueNative(id gangID, pod *v1.Pod) *fwk.Status {
	reason, detail := gang.ReasonNone, ""
	p.gangs.step(pod, func(e *gangEntry, now time.Time) {
		p.gangs.endCycleLocked(e, now)
		reason, detail, _ = e.gang.Enqueue(pod.UID, now)
	})
	return p.gangs.refusal(id, reason, detail)
}
