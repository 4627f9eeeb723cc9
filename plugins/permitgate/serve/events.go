package serve

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"zonewise.dev/plugins/permitgate/gang"
	"zonewise.dev/plugins/permitgate/podgroup"
)

// ReasonNoCRD is the reason why members wait while PodGroups cannot exist.
const ReasonNoCRD gang.Reason = "PodGroupCRDMissing"

const (
	// reportGrace is how long a PodGroup or members may be missing, with no new member, before events say so: pods and
	// their PodGroup may be created in any order.
	reportGrace = 5 * time.Second
	// reportPause is the least time between two events about rollbacks of one gang for one cause.
	reportPause = time.Minute

	reasonRolledBack      = "GangRolledBack"
	reasonInvalidTimeout  = "InvalidScheduleTimeout"
	reasonInvalidPolicy   = "InvalidRecoveryPolicy"
	reasonInvalidTopology = "InvalidTopology"
	reasonPartlyBound     = "GangPartlyBound"
	reasonBindFailed      = "GangBindFailed"
	reasonEvicted         = "GangEvicted"
	reasonMixed           = "MixedMembers"

	// maxNote is the longest note that the API server takes.
	maxNote = 1024
)

// told records which events about one gang have been sent, and its recovery.
type told struct {
	group types.UID // of the PodGroup; empty while there is none

	complained map[string]string        // the complaint of the last event, by the event's reason
	reason     gang.Reason              // what the gang waits for
	since      time.Time                // since when; reset when more members than ever exist
	most       int                      // the most live members since it waits for this
	onGroup    gang.Reason              // the reason that the PodGroup's last event gave
	pods       map[types.UID]bool       // those whose events have given the reason
	arrivals   int                      // how many pods had come when their events were sent
	rollbacks  map[gang.Cause]time.Time // when the last event about a rollback was, by cause
	bindFailed time.Time                // when the last event about a failed bind was
	recovery   *recovery                // nil unless bound members are being evicted
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

func (s *Server) toldLocked(key types.NamespacedName) *told {
	t := s.told[key]
	if t == nil {
		t = &told{}
		s.told[key] = t
	}
	return t
}

// message is one event to be sent.
type message struct {
	recorder  events.EventRecorderLogger
	regarding runtime.Object
	reason    string
	note      string
}

func (m message) send(logger klog.Logger) {
	note := m.note
	if len(note) > maxNote {
		note = note[:maxNote-4] + " ..."
	}
	m.recorder.WithLogger(logger).Eventf(m.regarding, nil, v1.EventTypeWarning, m.reason, "Scheduling", "%s", note)
}

// message returns an event about a gang, and false without a recorder.
func (s *Server) message(key types.NamespacedName, regarding runtime.Object, reason, note string) (message, bool) {
	profile := ""
	if pod, ok := regarding.(*v1.Pod); ok {
		profile = pod.Spec.SchedulerName
	}
	recorder := s.Handle(profile).EventRecorder()
	return message{recorder, regarding, reason, "PodGroup " + key.String() + ": " + note}, recorder != nil
}

// Event sends an event about a PodGroup, or about a pod if it is not nil.
func (s *Server) Event(ctx context.Context, key types.NamespacedName, pod *v1.Pod, reason, note string) {
	if !s.leading() {
		return
	}
	regarding := runtime.Object(pod)
	if pod == nil {
		s.mu.Lock()
		group := s.toldLocked(key).group
		s.mu.Unlock()
		regarding = reference(key, group)
	}
	if m, ok := s.message(key, regarding, reason, note); ok {
		m.send(klog.FromContext(ctx))
	}
}

// tell sends the due events about a gang, and schedules a look if one becomes due by time alone. It sends each event once to
// each object.
func (s *Server) tell(ctx context.Context, r Report, g *Gang) {
	depleted := s.depleted(r.Key, g)
	now := s.Clock.Now()
	s.mu.Lock()
	t := s.toldLocked(r.Key)
	uid := types.UID("")
	if g.Group != nil {
		uid = g.Group.UID
	}
	t.setGroup(uid)
	msgs := s.afterFailureLocked(t, r, now)
	if g.Group != nil {
		msgs = append(msgs, s.aboutGroupLocked(t, r, g, depleted)...)
	}
	due, again := t.waits(g, now)
	s.mu.Unlock()
	if due {
		msgs = append(msgs, s.aboutWaiting(r.Key, g)...)
	}
	logger := klog.FromContext(ctx)
	for _, m := range msgs {
		m.send(logger)
	}
	if again > 0 {
		s.agenda.AddAt(job{jobEvents, r.Key}, now.Add(again))
	}
}

// afterFailureLocked returns the events about a rollback and about failed binds.
func (s *Server) afterFailureLocked(t *told, r Report, now time.Time) (msgs []message) {
	tell := func(regarding runtime.Object, reason, note string) {
		if m, ok := s.message(r.Key, regarding, reason, note); ok {
			msgs = append(msgs, m)
		}
	}
	if rb := r.Actions.Rollback; rb != nil && now.Sub(t.rollbacks[rb.Cause]) >= reportPause {
		if t.rollbacks == nil {
			t.rollbacks = map[gang.Cause]time.Time{}
		}
		t.rollbacks[rb.Cause] = now
		note := rollbackNote(rb, r.Member)
		if t.group != "" {
			tell(reference(r.Key, t.group), reasonRolledBack, note)
		}
		if r.Member != nil {
			tell(r.Member, reasonRolledBack, note)
		}
	}
	for pod, node := range r.BindFailed {
		if now.Sub(t.bindFailed) < reportPause {
			break
		}
		t.bindFailed = now
		note := fmt.Sprintf("member %s: its bind to node %s failed after the gang had been let go; the node is kept for it, and it is tried again first", pod.Name, node)
		if t.group != "" {
			tell(reference(r.Key, t.group), reasonBindFailed, note)
		}
		tell(pod, reasonBindFailed, note)
	}
	return msgs
}

// aboutGroupLocked returns the events about the settings and the state of a PodGroup.
func (s *Server) aboutGroupLocked(t *told, r Report, g *Gang, depleted string) (msgs []message) {
	group := reference(r.Key, t.group)
	_, timeout := podgroup.TimeoutOf(g.Group)
	_, policy := podgroup.RecoveryPolicyOf(g.Group, s.RecoveryPolicy)
	_, topology := podgroup.TopologyOf(g.Group)
	for _, c := range []struct{ reason, text string }{
		{reasonInvalidTimeout, timeout},
		{reasonInvalidPolicy, policy},
		{reasonInvalidTopology, topology},
		{reasonMixed, g.mixed()},
		{reasonPartlyBound, depleted},
	} {
		if t.complains(c.reason, c.text) {
			if m, ok := s.message(r.Key, group, c.reason, c.text); ok {
				msgs = append(msgs, m)
			}
		}
	}
	if r.Actions.Stranded {
		if m, ok := s.message(r.Key, group, reasonPartlyBound, s.strandedNote(g)); ok {
			msgs = append(msgs, m)
		}
	}
	return msgs
}

// waits reports whether events are due about a gang whose PodGroup or members are missing, or when to look again.
func (t *told) waits(g *Gang, now time.Time) (due bool, again time.Duration) {
	reason := g.Reason
	if reason == gang.ReasonBackoff {
		reason = gang.ReasonNone // the rollback has its own event
	}
	switch {
	case reason != t.reason:
		t.reason, t.since, t.most = reason, now, g.Live
		t.onGroup, t.pods, t.arrivals = gang.ReasonNone, nil, 0
	case g.Live > t.most:
		t.most = g.Live
		if t.onGroup == gang.ReasonNone {
			t.since = now // members still arrive
		}
	}
	if reason == gang.ReasonNone || g.Unbound == 0 || t.arrivals == g.Arrivals {
		return false, 0
	}
	if wait := t.since.Add(reportGrace).Sub(now); wait > 0 && reason != gang.ReasonInvalid {
		return false, wait
	}
	return true, 0
}

// aboutWaiting returns the events about a gang whose PodGroup or members are missing.
func (s *Server) aboutWaiting(key types.NamespacedName, g *Gang) (msgs []message) {
	members := s.Gangs.Members(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.toldLocked(key)
	tell := func(regarding runtime.Object) {
		if m, ok := s.message(key, regarding, string(g.Reason), g.Detail); ok {
			msgs = append(msgs, m)
		}
	}
	if t.group != "" && t.onGroup != g.Reason {
		t.onGroup = g.Reason
		tell(reference(key, t.group))
	}
	pods := map[types.UID]bool{}
	for _, m := range members {
		if m.Pod.Spec.NodeName == "" {
			if pods[m.Pod.UID] = true; !t.pods[m.Pod.UID] {
				tell(m.Pod)
			}
		}
	}
	t.pods, t.arrivals = pods, g.Arrivals
	return msgs
}

// rollbackNote describes a rollback.
func rollbackNote(r *gang.Rollback, member *v1.Pod) string {
	note := r.Detail
	if member != nil && r.Cause != gang.CauseNoRoom && r.Cause != gang.CauseSharedClaim {
		note = fmt.Sprintf("member %s: %s", member.Name, note)
	}
	if r.Rejected > 0 {
		note += fmt.Sprintf("; %d waiting members were sent back", r.Rejected)
	}
	if r.Backoff > 0 {
		note += fmt.Sprintf("; next attempt in %s or when something changes that may help", r.Backoff.Round(time.Millisecond))
	}
	return note
}

// reference refers to the PodGroup, for events.
func reference(key types.NamespacedName, uid types.UID) *v1.ObjectReference {
	return &v1.ObjectReference{
		APIVersion: v1alpha1.SchemeGroupVersion.String(),
		Kind:       "PodGroup",
		Namespace:  key.Namespace,
		Name:       key.Name,
		UID:        uid,
	}
}
