package serve

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// The reasons of events about gangs, and of conditions of native ones.
const (
	reasonRolledBack  = "GangRolledBack"
	reasonPartlyBound = "GangPartlyBound"
)

// message is an event to be sent.
type message struct {
	regarding    runtime.Object
	reason, note string
}

// send sends events about a gang.
func (s *Server) send(ctx context.Context, id podgroup.ID, messages ...message) {
	for _, m := range messages {
		profile := ""
		if pod, ok := m.regarding.(*v1.Pod); ok {
			profile = pod.Spec.SchedulerName
		}
		recorder := s.Handle(profile).EventRecorder()
		if recorder == nil {
			return
		}
		note := crd.Shortened("PodGroup " + id.String() + ": " + m.note)
		recorder.WithLogger(klog.FromContext(ctx)).Eventf(m.regarding, nil, v1.EventTypeWarning, m.reason, "Scheduling", "%s", note)
	}
}

// rollbackNote describes a rollback. member is the pod that it names, nil if it is gone.
func rollbackNote(r *gang.Rollback, member *v1.Pod) string {
	note := r.Detail
	if member != nil && r.Cause != gang.CauseNoRoom && r.Cause != gang.CauseSharedClaim {
		note = fmt.Sprintf("member %s: %s", member.Name, note)
	}
	if r.Rejected > 0 {
		note += fmt.Sprintf("; %d waiting members were sent back", r.Rejected)
	}
	return note
}
