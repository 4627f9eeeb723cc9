package permitgate

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/plugins/permitgate/gang"
)

// PreEnqueue keeps a member out of the queue until its PodGroup and minMember live members exist, and
// while the gang backs off. It runs under the scheduling queue's lock and looks only at memory.
func (p *PermitGate) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	key, ok := gangOf(pod)
	if !ok || pod.Spec.NodeName != "" {
		return nil
	}
	return refusal(key, p.shared.ask(key, func(g *gang.Gang, now time.Time) (gang.Reason, string) {
		return g.Admit(pod.UID, now)
	}))
}

// answer is why a member is refused; its reason is ReasonNone when it is not.
type answer struct {
	reason gang.Reason
	detail string
}

// ask puts a question to a gang. About a gang that is not known the answer is that its PodGroup does
// not exist.
func (s *Shared) ask(key types.NamespacedName, question func(g *gang.Gang, now time.Time) (gang.Reason, string)) answer {
	a := answer{gang.ReasonNotFound, ""}
	s.look(key, func(e *entry, now time.Time) {
		a.reason, a.detail = question(e.gang, now)
	})
	if a.reason == gang.ReasonNotFound {
		return s.missing()
	}
	return a
}

// refusal words an answer as a status, nil when the member is not refused. The code keeps preemption
// from being tried.
func refusal(key types.NamespacedName, a answer) *fwk.Status {
	if a.reason == gang.ReasonNone {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "PodGroup "+key.String()+": "+a.detail)
}
