package serve

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/events"
	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// ReasonNoCRD is the reason why members wait while PodGroups cannot exist.
const ReasonNoCRD gang.Reason = "PodGroupCRDMissing"

const (
	// reportGrace is how long a PodGroup or members may be missing, with no new member, before events say so: pods and
	// their PodGroup may be created in any order.
	reportGrace = 5 * time.Second

	reasonInvalidTimeout  = "InvalidScheduleTimeout"
	reasonInvalidTopology = "InvalidTopology"
	reasonInvalidDelay    = "InvalidPreemptionDelay"
	reasonMixed           = "MixedMembers"
)

// sentEvents records which events about one gang have been sent.
type sentEvents struct {
	group types.UID // of the PodGroup; empty while there is none

	complaints map[string]string // what is wrong with the PodGroup, by the event's reason
	failures   events.Failures

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

func (s *Server) sentLocked(key types.NamespacedName) *sentEvents {
	t := s.sent[key]
	if t == nil {
		t = &sentEvents{}
		s.sent[key] = t
	}
	return t
}

// SendEvent sends an event about a PodGroup, or about a pod if it is not nil.
func (s *Server) SendEvent(ctx context.Context, key types.NamespacedName, pod *v1.Pod, reason, note string) {
	if !s.leading() {
		return
	}
	regarding := runtime.Object(pod)
	if pod == nil {
		s.mu.Lock()
		group := s.sentLocked(key).group
		s.mu.Unlock()
		regarding = reference(key, group)
	}
	events.Send(ctx, s.Handle, key, events.About(regarding, reason, note))
}

// sendEvents sends the due events about a gang, and schedules a look if one becomes due by time alone. It sends each
// event once to each object.
func (s *Server) sendEvents(ctx context.Context, r Report, g *Gang) {
	kind, partly := s.partlyBoundNote(r.Key, g)
	now := s.Clock.Now()
	s.mu.Lock()
	t := s.sentLocked(r.Key)
	msgs := t.failureMessages(r, now)
	if g.Group != nil && g.Group.UID == t.group { // otherwise the report that says so is on its way
		msgs = append(msgs, t.groupMessages(r.Key, g)...)
		if g.Phase != gang.Releasing && t.noteIfNew(events.ReasonPartlyBound, kind) { // after a release in vain it is as before
			msgs = append(msgs, events.About(reference(r.Key, t.group), events.ReasonPartlyBound, partly))
		}
	}
	due, again := t.noteWaiting(g, now)
	s.mu.Unlock()
	if due {
		msgs = append(msgs, s.waitingMessages(r.Key, g)...)
	}
	events.Send(ctx, s.Handle, r.Key, msgs...)
	if again > 0 {
		s.agenda.AddAt(job{jobEvents, r.Key}, now.Add(again))
	}
}

// failureMessages returns the events about a rollback and about failed binds: on the PodGroup and on the pod.
func (t *sentEvents) failureMessages(r Report, now time.Time) (msgs []events.Message) {
	add := func(pod *v1.Pod, reason, note string) {
		if t.group != "" {
			msgs = append(msgs, events.About(reference(r.Key, t.group), reason, note))
		}
		if pod != nil {
			msgs = append(msgs, events.About(pod, reason, note))
		}
	}
	if rb := r.Actions.Rollback; rb != nil && t.failures.NoteIfDue(string(rb.Cause), now) {
		note := events.RollbackNote(rb, r.Member)
		if rb.Backoff > 0 {
			note += fmt.Sprintf("; next attempt in %s or when something changes that may help", rb.Backoff.Round(time.Millisecond))
		}
		add(r.Member, events.ReasonRolledBack, note)
	}
	if r.BindFailed != nil && t.failures.NoteIfDue(events.ReasonBindFailed, now) {
		add(r.BindFailed, events.ReasonBindFailed, events.BindFailedNote(r.BindFailed, r.Node))
	}
	return msgs
}

// groupMessages returns the events about the settings and the members of a PodGroup.
func (t *sentEvents) groupMessages(key types.NamespacedName, g *Gang) (msgs []events.Message) {
	group := reference(key, t.group)
	_, timeout := podgroup.TimeoutOf(g.Group)
	_, topology := podgroup.TopologyOf(g.Group)
	_, delay := podgroup.PreemptionDelayOf(g.Group)
	for _, c := range []struct{ reason, text string }{
		{reasonInvalidTimeout, timeout},
		{reasonInvalidTopology, topology},
		{reasonInvalidDelay, delay},
		{reasonMixed, g.mixedMembers()},
	} {
		if t.noteIfNew(c.reason, c.text) {
			msgs = append(msgs, events.About(group, c.reason, c.text))
		}
	}
	return msgs
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
func (s *Server) waitingMessages(key types.NamespacedName, g *Gang) (msgs []events.Message) {
	members := s.Gangs.Members(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.sentLocked(key)
	notified := sets.New[types.UID]()
	add := func(uid types.UID, regarding runtime.Object) {
		if notified.Insert(uid); !t.notified.Has(uid) {
			msgs = append(msgs, events.About(regarding, string(g.Reason), g.Detail))
		}
	}
	if g.Group != nil { // the gang's, since a report from before it came may have been the last to note t.group
		add(g.Group.UID, reference(key, g.Group.UID))
	}
	for _, m := range members {
		if m.Pod.Spec.NodeName == "" {
			add(m.Pod.UID, m.Pod)
		}
	}
	t.notified, t.notifiedAt = notified, s.Clock.Now()
	return msgs
}

// reference refers to the PodGroup, for events.
func reference(key types.NamespacedName, uid types.UID) *v1.ObjectReference {
	return events.PodGroup(v1alpha1.SchemeGroupVersion, key, uid)
}
