package serve

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// ReasonNoCRD is the reason why members wait while PodGroups cannot exist.
const ReasonNoCRD gang.Reason = "PodGroupCRDMissing"

// reportGrace is how long a PodGroup or members may be missing, with no new member, before that is reported: pods and
// their PodGroup may be created in any order.
const reportGrace = 5 * time.Second

// sentEvents records which events about one gang have been sent.
type sentEvents struct {
	group types.UID // of the PodGroup; empty while there is none

	complaints map[string]string        // what is wrong with the PodGroup, by the event's reason
	failures   map[gang.Cause]time.Time // when the last event about a rollback was sent, by its cause

	waitsFor   gang.Reason         // what the gang waits for
	notified   sets.Set[types.UID] // the PodGroup and the pods whose events have said so
	notifiedAt time.Time           // when the last of them did
}

// noteIfNew reports whether a complaint is new, and notes it.
func (t *sentEvents) noteIfNew(reason, complaint string) bool {
	if t.complaints[reason] == complaint {
		return false
	}
	if t.complaints == nil {
		t.complaints = map[string]string{}
	}
	t.complaints[reason] = complaint
	return complaint != ""
}

// failurePause is the least time between two events about rollbacks of one gang for one cause.
const failurePause = time.Minute

// noteFailure reports whether an event about a rollback is due, and then counts it as sent.
func (t *sentEvents) noteFailure(cause gang.Cause, now time.Time) bool {
	if last, sent := t.failures[cause]; sent && now.Sub(last) < failurePause {
		return false
	}
	if t.failures == nil {
		t.failures = map[gang.Cause]time.Time{}
	}
	t.failures[cause] = now
	return true
}

func (s *Server) sentLocked(id podgroup.ID) *sentEvents {
	t := s.sent[id]
	if t == nil {
		t = &sentEvents{}
		s.sent[id] = t
	}
	return t
}

// SendEvent sends an event about a pod, or about the PodGroup of a gang if the pod is nil.
func (s *Server) SendEvent(ctx context.Context, id podgroup.ID, pod *v1.Pod, reason, note string) {
	if !s.leading() {
		return
	}
	regarding := runtime.Object(pod)
	if pod == nil {
		g, _ := s.Gangs.Get(id)
		if g.Group == nil {
			return
		}
		regarding = g.Group.Reference()
	}
	s.send(ctx, id, message{regarding, reason, note})
}

// sendEvents sends the due events about a gang that is not native, and schedules a look if one becomes due by time
// alone. It sends each event once to each object. What becomes of a member its own condition says.
func (s *Server) sendEvents(ctx context.Context, r Report, g *Gang) {
	kind, partly := s.partlyBoundNote(r.ID, g)
	now := s.Clock.Now()
	s.mu.Lock()
	t := s.sentLocked(r.ID)
	var msgs []message
	if rb := r.Actions.Rollback; rb != nil && g.Group != nil && t.noteFailure(rb.Cause, now) {
		note := rollbackNote(rb, r.Member)
		if rb.Backoff > 0 {
			note += fmt.Sprintf("; next attempt in %s or when something changes that may help", rb.Backoff.Round(time.Millisecond))
		}
		msgs = append(msgs, message{g.Group.Reference(), reasonRolledBack, note})
	}
	if g.Group != nil && g.Group.GetUID() == t.group { // otherwise the report that says so is on its way
		for _, c := range g.Group.Complaints {
			if t.noteIfNew(c.Reason, c.Text) {
				msgs = append(msgs, message{g.Group.Reference(), c.Reason, c.Text})
			}
		}
		if g.Phase != gang.Releasing && t.noteIfNew(reasonPartlyBound, kind) { // after a release that fails it is as before
			msgs = append(msgs, message{g.Group.Reference(), reasonPartlyBound, partly})
		}
	}
	due, again := t.noteWaiting(g, now)
	s.mu.Unlock()
	if due {
		msgs = append(msgs, s.waitingMessages(r.ID, g)...)
	}
	s.send(ctx, r.ID, msgs...)
	if again > 0 {
		s.agenda.AddAt(job{kind: jobEvents, gang: r.ID}, now.Add(again))
	}
}

// noteWaiting reports whether events are due about a gang whose PodGroup or members are missing, or when to look again.
func (t *sentEvents) noteWaiting(g *Gang, now time.Time) (due bool, again time.Duration) {
	reason := g.Reason
	if reason == gang.ReasonBackoff {
		reason = gang.ReasonNone // the rollback has its own event
	}
	if reason != t.waitsFor {
		t.waitsFor, t.notified, t.notifiedAt = reason, nil, time.Time{}
	}
	if reason == gang.ReasonNone || g.Unbound == 0 || g.ShortSince.Before(t.notifiedAt) {
		return false, 0
	}
	if wait := g.ShortSince.Add(reportGrace).Sub(now); wait > 0 && reason != gang.ReasonInvalid {
		return false, wait
	}
	return true, 0
}

// waitingMessages returns the events about a gang whose PodGroup or members are missing.
func (s *Server) waitingMessages(id podgroup.ID, g *Gang) (msgs []message) {
	members, detail := s.Gangs.Members(id), g.Detail
	if n := countPods(s.podsOf(id)).succeeded; n > 0 && g.Reason == gang.ReasonTooFew {
		detail += fmt.Sprintf("; %d have succeeded, which count as long as their controller has others in the gang", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.sentLocked(id)
	notified := sets.New[types.UID]()
	add := func(uid types.UID, regarding runtime.Object) {
		if notified.Insert(uid); !t.notified.Has(uid) {
			msgs = append(msgs, message{regarding, string(g.Reason), detail})
		}
	}
	if g.Group != nil { // the gang's, since a report from before it came may have been the last to note t.group
		add(g.Group.GetUID(), g.Group.Reference())
	}
	for _, m := range members {
		if m.Pod.Spec.NodeName == "" {
			add(m.Pod.UID, m.Pod)
		}
	}
	t.notified, t.notifiedAt = notified, s.Clock.Now()
	return msgs
}
