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
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// statusPause gathers changes: a reservation's status is written at most twice a second.
const statusPause = 500 * time.Millisecond

// writeLaterLocked has the status of a reservation looked at after a pause. Before slots have been placed, which a
// standby never does, there is nothing to say; then all statuses are looked at.
func (s *Server) writeLaterLocked(uid types.UID, pause time.Duration) {
	if s.placing.Load() {
		s.writer.Later(metav1.NamespaceNone, uid, pause)
	}
}

// wantedStatus returns a reservation as last seen, and with the status that it should have; false while this process
// does not know how it stands, or another scheduler holds it. What is held is written at once, all else on a tick. It
// is the writer's.
func (s *Server) wantedStatus(uid types.UID) (seen, wanted *v1alpha1.ZoneReservation, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || e.heldBy != "" || e.named != e.object.Latest.Status.Scheduler || !s.placing.Load() || e.object.Latest.DeletionTimestamp != nil {
		return nil, nil, false
	}
	if e.object.Valid() && !e.expired && (e.report == nil || e.applied != e.object.Spec) {
		return nil, nil, false
	}
	seen = e.object.Latest
	wanted = seen.DeepCopy()
	now := s.Clock.Now()
	wanted.Status = s.statusLocked(e, now)
	if apiequality.Semantic.DeepEqual(seen.Status, wanted.Status) {
		return seen, seen, true
	}
	if due := e.written.Add(tick); due.After(now) && apiequality.Semantic.DeepEqual(essence(seen.Status), essence(wanted.Status)) {
		s.writeLaterLocked(uid, due.Sub(now))
		return seen, seen, true
	}
	wanted.Status.LastUpdateTime = metav1.NewMicroTime(now)
	return seen, wanted, true
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
		Buy:                obj.Status.Buy, // the controller's, as the condition Buying
	}
	if r := e.report; r != nil && e.applied != nil {
		status.Slots = slotCounts(&r.Counts)
		status.Requests = requestsOf(&r.Claim.Slot)
		for i := range r.Zones {
			status.Zones = append(status.Zones, zoneStatus(&r.Zones[i]))
		}
		for i := range r.Kept {
			k := &r.Kept[i]
			status.Former = append(status.Former, v1alpha1.ReservationFormerSlots{Node: k.Node, Slots: int64(k.Slots), Requests: requestsOf(&k.Size)})
		}
	}
	for _, c := range s.conditionsLocked(e) {
		c.ObservedGeneration = obj.Generation
		c.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		c.Message = crd.Shortened(c.Message)
		meta.SetStatusCondition(&status.Conditions, c)
	}
	return status
}

func slotCounts(c *floor.Counts) v1alpha1.SlotCounts {
	return v1alpha1.SlotCounts{Desired: int64(c.Desired), Held: int64(c.Held), Used: int64(c.Used)}
}

// requestsOf is the size of a slot as the spec has it, without its place for a pod.
func requestsOf(size *ledger.Resources) v1.ResourceList {
	list := size.List()
	delete(list, v1.ResourcePods)
	return list
}

// zoneStatus returns what is desired and held in a zone, and on which nodes.
func zoneStatus(z *floor.ZoneReport) v1alpha1.ReservationZoneStatus {
	status := v1alpha1.ReservationZoneStatus{Name: z.Name, SlotCounts: slotCounts(&z.Counts)}
	for _, n := range z.Nodes {
		status.Nodes = append(status.Nodes, v1alpha1.ReservationNodeStatus{Name: n.Name, Slots: int64(n.Slots), Used: int64(n.Used)})
	}
	return status
}

// essence is a status without what may wait for a tick.
func essence(status v1alpha1.ZoneReservationStatus) v1alpha1.ZoneReservationStatus {
	out := *status.DeepCopy()
	out.Slots.Used = 0
	for i := range out.Conditions {
		out.Conditions[i].Message = ""
	}
	for i := range out.Zones {
		out.Zones[i].Used = 0
		for j := range out.Zones[i].Nodes {
			out.Zones[i].Nodes[j].Used = 0
		}
	}
	return out
}

// written records that a status was written, and sends Events about changed conditions.
func (s *Server) written(before, after *v1alpha1.ZoneReservation) {
	s.mu.Lock()
	if e := s.entries[after.UID]; e != nil {
		e.written = s.Clock.Now()
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
