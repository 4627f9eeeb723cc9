package permitgate

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
)

const (
	// reportGrace is how long a PodGroup or members may be missing, and no more come, before events say so: pods and
	// their PodGroup are created in any order, and nobody wants to hear of that.
	reportGrace = 5 * time.Second
	// reportPause is the least time between two events about rollbacks of one gang for one cause.
	reportPause = time.Minute

	reasonRolledBack     = "GangRolledBack"
	reasonInvalidTimeout = "InvalidScheduleTimeout"
	reasonInvalidPolicy  = "InvalidRecoveryPolicy"
	reasonPartlyBound    = "GangPartlyBound"
	reasonBindFailed     = "GangBindFailed"
	reasonEvicted        = "GangEvicted"
	reasonMixed          = "MixedMembers"

	// maxNote is the longest note that the API server takes.
	maxNote = 1024
)

// told is what events have said about one gang.
type told struct {
	group types.UID // of the PodGroup; empty while there is none

	complained map[string]string         // the complaint that an event has carried, by the event's reason
	reason     gang.Reason               // what the gang waits for
	since      time.Time                 // since when, or since a member more than ever since came
	most       int                       // how many live members there have been at most since it waits for this
	onGroup    gang.Reason               // the reason that the PodGroup's last event gave
	pods       map[types.UID]gang.Reason // the reason that each pod's last event gave
	rollbacks  map[gang.Cause]time.Time  // when the last event about a rollback was, by cause
	bindFailed time.Time                 // when the last event about a failed bind was

	preemptionFailed string // why, to be told; empty when nothing is
}

// setGroup takes the PodGroup's UID.
func (t *told) setGroup(uid types.UID) {
	if t.group != uid {
		t.complained, t.onGroup = nil, gang.ReasonNone
	}
	t.group = uid
}

// complains reports whether a complaint is new, and notes it.
func (t *told) complains(reason, complaint string) bool {
	if t.complained[reason] == complaint {
		return false
	}
	if t.complained == nil {
		t.complained = map[string]string{}
	}
	t.complained[reason] = complaint
	return complaint != ""
}

// message is one event to be sent.
type message struct {
	recorder  events.EventRecorderLogger
	regarding runtime.Object
	kind      string
	reason    string
	note      string
}

func (m message) send(logger klog.Logger) {
	note := m.note
	if len(note) > maxNote {
		note = note[:maxNote-4] + " ..."
	}
	m.recorder.WithLogger(logger).Eventf(m.regarding, nil, m.kind, m.reason, "Scheduling", "%s", note)
}

// messagesLocked returns the events that are due about a gang, and when to look again if one becomes
// due by time alone. Only the leader speaks, of which a rollback is proof enough, since standby replicas
// schedule nothing; and it says each thing once to each object.
func (s *Shared) messagesLocked(e *entry, actions gang.Actions, now time.Time) (msgs []message, again time.Duration) {
	t := &e.told
	reason, detail := e.gang.Blocked(now)
	if reason == gang.ReasonNotFound {
		a := s.missingLocked()
		reason, detail = a.reason, a.detail
	}
	if reason == gang.ReasonBackoff {
		reason = gang.ReasonNone // the rollback has its own event
	}
	live, _, _ := e.gang.Counts()
	switch {
	case reason != t.reason:
		t.reason, t.since, t.most = reason, now, live
		t.onGroup, t.pods = gang.ReasonNone, nil
	case live > t.most:
		t.most = live
		if t.onGroup == gang.ReasonNone {
			t.since = now // they still come
		}
	}
	tell := func(regarding runtime.Object, handle string, reason, note string) {
		if h, ok := s.profiles[handle]; ok && h.EventRecorder() != nil {
			msgs = append(msgs, message{h.EventRecorder(), regarding, v1.EventTypeWarning, reason, "PodGroup " + e.key.String() + ": " + note})
		}
	}
	profile := ""
	for name := range s.profiles {
		if profile == "" || name < profile {
			profile = name
		}
	}
	if r := actions.Rollback; r != nil && now.Sub(t.rollbacks[r.Cause]) >= reportPause {
		if t.rollbacks == nil {
			t.rollbacks = map[gang.Cause]time.Time{}
		}
		t.rollbacks[r.Cause] = now
		note := rollbackNote(r, e.pods[r.Member])
		if t.group != "" {
			tell(e.reference(), profile, reasonRolledBack, note)
		}
		if pod := e.pods[r.Member]; pod != nil {
			tell(pod, pod.Spec.SchedulerName, reasonRolledBack, note)
		}
	}
	select {
	case <-s.leading:
	default:
		return msgs, 0
	}
	if e.group != nil {
		for _, c := range s.complaintsLocked(e, now) {
			if t.complains(c.reason, c.text) {
				tell(e.reference(), profile, c.reason, c.text)
			}
		}
		if actions.Stranded {
			tell(e.reference(), profile, reasonPartlyBound, s.strandedNoteLocked(e))
		}
		if t.preemptionFailed != "" {
			tell(e.reference(), profile, reasonPreemptionFailed, t.preemptionFailed)
			t.preemptionFailed = ""
		}
	}
	for _, uid := range actions.BindFailed {
		if pod := e.pods[uid]; pod != nil && now.Sub(t.bindFailed) >= reportPause {
			t.bindFailed = now
			note := fmt.Sprintf("member %s: its bind to node %s failed after the gang had been let go; the node is kept for it, and it is tried again first", pod.Name, e.nodes[uid])
			tell(e.reference(), profile, reasonBindFailed, note)
			tell(pod, pod.Spec.SchedulerName, reasonBindFailed, note)
		}
	}
	if reason == gang.ReasonNone || reason == gang.ReasonTooFew && !e.awaits() || len(e.pods) == 0 {
		return msgs, 0
	}
	if wait := t.since.Add(reportGrace).Sub(now); wait > 0 && reason != gang.ReasonInvalid {
		return msgs, wait
	}
	if t.group != "" && t.onGroup != reason {
		t.onGroup = reason
		tell(e.reference(), profile, string(reason), detail)
	}
	for uid, pod := range e.pods {
		if pod.Spec.NodeName != "" || t.pods[uid] == reason {
			continue
		}
		if t.pods == nil {
			t.pods = map[types.UID]gang.Reason{}
		}
		t.pods[uid] = reason
		tell(pod, pod.Spec.SchedulerName, string(reason), detail)
	}
	return msgs, 0
}

// awaits reports whether a live member is not bound: it waits for the others.
func (e *entry) awaits() bool {
	for _, pod := range e.pods {
		if pod.Spec.NodeName == "" {
			return true
		}
	}
	return false
}

// rollbackNote says what a rollback was about.
func rollbackNote(r *gang.Rollback, member *v1.Pod) string {
	note := r.Detail
	if member != nil {
		note = fmt.Sprintf("member %s: %s", member.Name, note)
	}
	note += fmt.Sprintf("; %d waiting members were sent back", r.Rejected)
	if r.Backoff > 0 {
		note += fmt.Sprintf(", next attempt in %s or when room is made", r.Backoff.Round(time.Millisecond))
	}
	return note
}

// reference points an event at the PodGroup.
func (e *entry) reference() *v1.ObjectReference {
	return &v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind:       "PodGroup",
		Namespace:  e.key.Namespace,
		Name:       e.key.Name,
		UID:        e.told.group,
	}
}
