// Package events sends events about gangs, of PodGroups of either API.
package events

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// The reasons of events about gangs of either API.
const (
	ReasonRolledBack  = "GangRolledBack"
	ReasonBindFailed  = "GangBindFailed"
	ReasonPartlyBound = "GangPartlyBound"
)

// Message is an event to be sent.
type Message struct {
	Regarding    runtime.Object
	Reason, Note string
}

// About returns an event about an object.
func About(regarding runtime.Object, reason, note string) Message {
	return Message{regarding, reason, note}
}

// Send sends events about a gang. handle returns that of the profile with a name, or of any when it has no such plugin.
func Send(ctx context.Context, handle func(profile string) fwk.Handle, id podgroup.ID, messages ...Message) {
	for _, m := range messages {
		profile := ""
		if pod, ok := m.Regarding.(*v1.Pod); ok {
			profile = pod.Spec.SchedulerName
		}
		recorder := handle(profile).EventRecorder()
		if recorder == nil {
			return
		}
		note := crd.Shortened("PodGroup " + id.String() + ": " + m.Note)
		recorder.WithLogger(klog.FromContext(ctx)).Eventf(m.Regarding, nil, v1.EventTypeWarning, m.Reason, "Scheduling", "%s", note)
	}
}

// RollbackNote describes a rollback. member is the pod that it names, nil if it is gone.
func RollbackNote(r *gang.Rollback, member *v1.Pod) string {
	note := r.Detail
	if member != nil && r.Cause != gang.CauseNoRoom && r.Cause != gang.CauseSharedClaim {
		note = fmt.Sprintf("member %s: %s", member.Name, note)
	}
	if r.Rejected > 0 {
		note += fmt.Sprintf("; %d waiting members were sent back", r.Rejected)
	}
	return note
}

// BindFailedNote describes a bind that failed.
func BindFailedNote(member *v1.Pod, node string) string {
	return fmt.Sprintf("member %s: its bind to node %s failed after the gang had been released; the node is kept for the next attempt, unless it has failed there before", member.Name, node)
}

// failurePause is the least time between two events about failures of one gang for one cause.
const failurePause = time.Minute

// Failures records when the last event about a gang's failure was sent, by its cause. The zero value is ready for use;
// it has no lock.
type Failures struct{ sent map[string]time.Time }

// NoteIfDue reports whether an event about a failure is due, and then counts it as sent.
func (f *Failures) NoteIfDue(cause string, now time.Time) bool {
	if last, sent := f.sent[cause]; sent && now.Sub(last) < failurePause {
		return false
	}
	if f.sent == nil {
		f.sent = map[string]time.Time{}
	}
	f.sent[cause] = now
	return true
}
