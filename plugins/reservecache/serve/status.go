package serve

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

const (
	// statusPause gathers changes: a reservation's status is written at most twice a second, and within one of any
	// change of what is held.
	statusPause = 500 * time.Millisecond
	// useInterval is how long a status waits at least in which only what is used is new.
	useInterval = 10 * time.Second
	// messageInterval is how long a status waits at least in which only the words of conditions are new, such as how
	// many nodes lack CPU for a slot.
	messageInterval = 10 * time.Second
	// messagePause is the least time between two writes of any status in which only words are new: what all
	// reservations that lack room say changes all the time, and is not to delay the others.
	messagePause = time.Second
)

// writeLaterLocked has the status of a reservation looked at after a pause. Before slots have been placed, which a
// standby never does, there is nothing to say; then all statuses are looked at.
func (s *Server) writeLaterLocked(uid types.UID, pause time.Duration) {
	if s.placing.Load() {
		s.writer.Later(metav1.NamespaceNone, uid, pause)
	}
}

// wantedStatus returns a reservation as last seen, and with the status that it should have; false while this process
// has not placed its slots: what the status says of them is to be adopted first. It is the writer's.
func (s *Server) wantedStatus(uid types.UID) (seen, wanted *v1alpha1.ZoneReservation, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || e.object.Latest == nil || e.heldBy != "" || !s.served || !s.placing.Load() ||
		e.object.Latest.DeletionTimestamp != nil {
		return nil, nil, false
	}
	if e.valid != nil && !e.expired && e.report == nil {
		return nil, nil, false
	}
	if e.applied != nil && e.applied.nodes != nil && e.reported != e.applied {
		return nil, nil, false // what the status leaves out would be read as what the new spec says
	}
	seen = e.object.Latest
	wanted = seen.DeepCopy()
	now := s.Clock.Now()
	wanted.Status = s.statusLocked(e, now)
	if apiequality.Semantic.DeepEqual(seen.Status, wanted.Status) {
		e.wordsDue = time.Time{}
		return seen, seen, true
	}
	if apiequality.Semantic.DeepEqual(withoutMessages(seen.Status), withoutMessages(wanted.Status)) {
		if due := s.wordsDueLocked(e, now); due.After(now) {
			s.writeLaterLocked(uid, due.Sub(now))
			return seen, seen, true
		}
	} else if apiequality.Semantic.DeepEqual(withoutUse(seen.Status), withoutUse(wanted.Status)) {
		if due := e.written.Add(useInterval); due.After(now) {
			s.writeLaterLocked(uid, due.Sub(now))
			return seen, seen, true
		}
	}
	wanted.Status.LastUpdateTime = metav1.NewMicroTime(now)
	return seen, wanted, true
}

// wordsDueLocked returns when a status in which only words are new may be written. Reservations take turns.
func (s *Server) wordsDueLocked(e *entry, now time.Time) time.Time {
	if e.wordsDue.IsZero() {
		e.wordsDue = slices.MaxFunc([]time.Time{now, e.written.Add(messageInterval), s.wordsTurn}, time.Time.Compare)
		s.wordsTurn = e.wordsDue.Add(messagePause)
	}
	return e.wordsDue
}

// statusLocked computes the status of a reservation. The previous one is only used for the times at which conditions
// changed and at which it was written, so that equal observations give equal statuses.
func (s *Server) statusLocked(e *entry, now time.Time) v1alpha1.ZoneReservationStatus {
	obj := e.object.Latest
	status := v1alpha1.ZoneReservationStatus{
		ObservedGeneration: obj.Generation,
		LastUpdateTime:     obj.Status.LastUpdateTime,
		Scheduler:          s.Lease(),
		Conditions:         slices.Clone(obj.Status.Conditions),
		Buy:                obj.Status.Buy, // the controller's, as two of the conditions
	}
	if e.report != nil && e.applied != nil {
		status.Slots, status.Amounts = sumsStatus(e.applied, &e.report.Sums)
		status.Zones = zoneStatuses(e.applied, e.report)
	} else if e.valid != nil && !e.expired {
		status.Slots.Desired = int64(e.valid.slots)
	}
	for _, c := range e.conditions() {
		c.ObservedGeneration = obj.Generation
		c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		c.Message = crd.Shortened(c.Message)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

// sumsStatus returns sums as the status has them. A reservation of slots has no amounts.
func sumsStatus(s *spec, sums *placement.Sums) (v1alpha1.SlotCounts, v1alpha1.ReservationAmounts) {
	counts := v1alpha1.SlotCounts{Desired: sums.Desired.Pods, Held: sums.Held.Pods, Used: sums.Used.Pods}
	if s.nodes == nil {
		return counts, v1alpha1.ReservationAmounts{}
	}
	return counts, v1alpha1.ReservationAmounts{
		Desired: listOf(&sums.Desired), Held: listOf(&sums.Held), Used: listOf(&sums.Used),
	}
}

// listOf is nil for no amount.
func listOf(r *ledger.Resources) v1.ResourceList {
	if r.IsZero() {
		return nil
	}
	return r.List()
}

// zoneStatuses returns what is desired and held in each zone, and on which nodes.
func zoneStatuses(s *spec, r *placement.Report) []v1alpha1.ReservationZoneStatus {
	zones := make([]v1alpha1.ReservationZoneStatus, 0, len(r.Zones))
	for i := range r.Zones {
		z := &r.Zones[i]
		status := v1alpha1.ReservationZoneStatus{Name: z.Name}
		status.SlotCounts, status.Amounts = sumsStatus(s, &z.Sums)
		for j := range z.Nodes {
			status.Nodes = append(status.Nodes, nodeStatus(s, &z.Nodes[j]))
		}
		zones = append(zones, status)
	}
	return zones
}

// nodeStatus returns what is held on a node.
func nodeStatus(s *spec, n *placement.NodeReport) v1alpha1.ReservationNodeStatus {
	status := v1alpha1.ReservationNodeStatus{Name: n.Node}
	if s.nodes == nil {
		status.Slots, status.Used = n.Held.Pods, n.Used.Pods
	} else {
		_, status.Amounts = sumsStatus(s, &placement.Sums{Desired: s.nodes[n.Node], Held: n.Held, Used: n.Used})
	}
	return status
}

// withoutMessages returns a status without what may wait.
func withoutMessages(status v1alpha1.ZoneReservationStatus) v1alpha1.ZoneReservationStatus {
	status.Conditions = slices.Clone(status.Conditions)
	for i := range status.Conditions {
		status.Conditions[i].Message = ""
	}
	return status
}

// withoutUse returns a status without what changes as owners come and go.
func withoutUse(status v1alpha1.ZoneReservationStatus) v1alpha1.ZoneReservationStatus {
	out := withoutMessages(*status.DeepCopy())
	out.Slots.Used, out.Amounts.Used = 0, nil
	for i := range out.Zones {
		z := &out.Zones[i]
		z.Used, z.Amounts.Used = 0, nil
		for j := range z.Nodes {
			z.Nodes[j].Used, z.Nodes[j].Amounts.Used = 0, nil
		}
	}
	return out
}

// written records that a status was written, and sends Events about changed conditions.
func (s *Server) written(before, after *v1alpha1.ZoneReservation) {
	s.mu.Lock()
	if e := s.entries[after.UID]; e != nil {
		e.written, e.wordsDue = s.Clock.Now(), time.Time{}
	}
	s.mu.Unlock()
	recorder := s.Handle.EventRecorder()
	if recorder == nil {
		return
	}
	for _, about := range []struct {
		condition string
		bad       metav1.ConditionStatus
		quiet     bool // that all is well from the start is not worth a word
	}{
		{v1alpha1.ConditionAccepted, metav1.ConditionFalse, true},
		{v1alpha1.ConditionReady, metav1.ConditionFalse, false},
		{v1alpha1.ConditionDegraded, metav1.ConditionTrue, true},
		{v1alpha1.ConditionOwnersDoNotFit, metav1.ConditionTrue, true},
		{v1alpha1.ConditionProtected, metav1.ConditionFalse, true},
		{v1alpha1.ConditionExpired, "", true},
	} {
		earlier := meta.FindStatusCondition(before.Status.Conditions, about.condition)
		now := meta.FindStatusCondition(after.Status.Conditions, about.condition)
		if now == nil || earlier != nil && earlier.Status == now.Status && earlier.Reason == now.Reason {
			continue
		}
		first := earlier == nil || earlier.Status == metav1.ConditionUnknown
		isNews := now.Status == metav1.ConditionTrue && (!about.quiet || now.Reason == v1alpha1.ReasonExpired)
		kind := v1.EventTypeNormal
		if now.Status == about.bad {
			kind = v1.EventTypeWarning
		} else if first && !isNews {
			continue
		}
		recorder.Eventf(reference(after), nil, kind, now.Reason, "Reserving", "%s", now.Message)
	}
}

// reference refers to a reservation. The recorder's scheme knows built-in kinds only, and objects from a watch do not
// tell theirs.
func reference(obj *v1alpha1.ZoneReservation) *v1.ObjectReference {
	kind := v1alpha1.SchemeGroupVersion.WithKind("ZoneReservation")
	return &v1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind,
		Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion,
	}
}
