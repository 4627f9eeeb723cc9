package serve

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/reservecache/floor"
	"zonewise.dev/plugins/reservecache/ledger"
)

// entry is what is kept about one reservation.
type entry struct {
	object crd.Object[*v1alpha1.ZoneReservation, *spec]
	// applied is what the claims have of it, and at what priority; nil when they have nothing.
	applied  *spec
	priority int32
	// expired is set once the reservation has expired.
	expired bool
	// named is the lease that its status named when it was last decided who holds it, and heldBy that of another
	// scheduler that holds it, and this one does not.
	named, heldBy string
	// report is how it stands; nil before the first time.
	report *floor.Report
	// survey is what the last look at pods found.
	survey survey
	// written is when its status was last written.
	written time.Time
}

// reservationSeen takes a reservation as the API server shows it.
func (s *Server) reservationSeen(obj *v1alpha1.ZoneReservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[obj.UID]
	if e == nil {
		e = &entry{}
		s.entries[obj.UID] = e
	}
	deleting := e.object.Latest != nil && e.object.Latest.DeletionTimestamp == nil && obj.DeletionTimestamp != nil
	if changed := e.object.See(obj, compile); changed || deleting {
		s.requestApplyLocked()
	}
	if obj.Status.Scheduler != e.named {
		s.RequestPass()
	}
	// Also when only the status has changed: it may be an older one than the last that was looked at, or not ours.
	s.writeLaterLocked(obj.UID, statusPause)
}

// reservationGone forgets a reservation, and what it held.
func (s *Server) reservationGone(obj *v1alpha1.ZoneReservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, obj.UID)
	s.requestApplyLocked()
}

// requestApplyLocked has a pass work out again what applies.
func (s *Server) requestApplyLocked() {
	s.needsApply = true
	s.RequestPass()
}

// decideHolders finds out which reservations another scheduler holds: one whose Lease a status names, while that is
// renewed. It may take requests. It returns when to look again; zero for not before something happens.
func (s *Server) decideHolders(ctx context.Context) (next time.Time) {
	type question struct {
		e     *entry
		named string
	}
	var questions []question
	own := s.Lease()
	s.mu.Lock()
	for _, e := range s.entries {
		named := e.object.Latest.Status.Scheduler
		if named == own || named == "" {
			s.setHolderLocked(e, named, "")
		} else {
			questions = append(questions, question{e, named})
		}
	}
	s.mu.Unlock()
	answers := map[string]bool{}
	for _, q := range questions {
		yields, known := answers[q.named]
		if !known {
			yields = s.Yields(ctx, own, q.named)
			answers[q.named] = yields
		}
		s.mu.Lock()
		if yields {
			s.setHolderLocked(q.e, q.named, q.named)
		} else {
			s.setHolderLocked(q.e, q.named, "")
		}
		s.mu.Unlock()
	}
	if len(questions) > 0 {
		next = s.Clock.Now().Add(tick)
	}
	return next
}

// setHolderLocked notes that the scheduler of another lease holds a reservation; of none for this one.
func (s *Server) setHolderLocked(e *entry, named, heldBy string) {
	if e.named != named {
		e.named = named
		s.writeLaterLocked(e.object.Latest.UID, statusPause)
	}
	if e.heldBy == heldBy {
		return
	}
	e.heldBy = heldBy
	s.needsApply = true
	s.writeLaterLocked(e.object.Latest.UID, statusPause)
	logger, name := klog.Background(), e.object.Latest.Name
	if heldBy == "" {
		logger.Info("The scheduler that held the reservation is gone, so this one holds it", "reservation", name, "lease", s.Lease())
		return
	}
	logger.Info("Another scheduler holds the reservation, so this one does not", "reservation", name, "other", heldBy, "lease", s.Lease())
	if recorder := s.Handle.EventRecorder(); recorder != nil {
		recorder.Eventf(reference(e.object.Latest), nil, v1.EventTypeWarning, v1alpha1.ReasonHeldByAnother, "Reserving",
			"the scheduler with the lease %s holds the reservation, and the one with the lease %s does not: "+
				"to the pods of that one its room is free", heldBy, s.Lease())
	}
}

// activeLocked returns the reservations that hold capacity, the oldest first, and notes which are over.
func (s *Server) activeLocked() []*entry {
	now := s.Clock.Now()
	var active []*entry
	for uid, e := range s.entries {
		// One that is being deleted waits for finalizers of others, and is over.
		if !e.object.Valid() || e.heldBy != "" || e.object.Latest.DeletionTimestamp != nil {
			continue
		}
		expired := e.object.Spec.expired(now)
		if !expired {
			active = append(active, e)
		}
		if e.expired != expired {
			e.expired = expired
			s.writeLaterLocked(uid, statusPause)
		}
	}
	slices.SortFunc(active, func(a, b *entry) int { return compareAge(a.object.Spec, b.object.Spec) })
	return active
}

// apply works out which reservations apply, if something has changed, and passes them on to the scheduling cycles.
// passing is held.
func (s *Server) apply() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.needsApply {
		return
	}
	s.needsApply = false
	active := s.activeLocked()
	specs := make([]*spec, len(active))
	for i, e := range active {
		specs[i] = e.object.Spec
	}
	claims := &Claims{owners: indexOwners(specs)}
	s.surveyLocked(claims.owners)
	fallback, _ := s.defaultPriorityLocked()
	applied := make(map[*entry]bool, len(active))
	for _, e := range active {
		spec, priority := e.object.Spec, e.survey.defaultPriority(fallback)
		if spec.priority != nil {
			priority = *spec.priority
		}
		if e.applied != spec || e.priority != priority {
			e.applied, e.priority = spec, priority
			s.writeLaterLocked(spec.uid, statusPause)
		}
		claim := spec.claim(priority)
		claim.Seed = seedOf(spec, &e.object.Latest.Status)
		claims.List = append(claims.List, claim)
		claims.Counted = claims.Counted || spec.counted()
		applied[e] = true
	}
	for _, e := range s.entries {
		if !applied[e] {
			e.applied, e.report = nil, nil
		}
	}
	s.claims.Store(claims)
}

// seedOf is what a status says that a reservation held, for a scheduler that has not held it yet.
func seedOf(s *spec, status *v1alpha1.ZoneReservationStatus) (seed []floor.Seed) {
	size := s.slot
	if len(status.Requests) > 0 {
		size = ledger.ResourcesOf(status.Requests)
		size.Pods = 1
	}
	for i := range status.Zones {
		for _, n := range status.Zones[i].Nodes {
			seed = append(seed, floor.Seed{Node: n.Name, Slots: int(n.Slots), Size: size})
		}
	}
	for i := range status.Former {
		k := &status.Former[i]
		size := ledger.ResourcesOf(k.Requests)
		size.Pods = 1
		seed = append(seed, floor.Seed{Node: k.Node, Slots: int(k.Slots), Size: size})
	}
	return seed
}

// nextExpiry returns when the next reservation expires; zero if none does.
func (s *Server) nextExpiry() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	for _, e := range s.entries {
		if e.applied != nil && !e.applied.deadline.IsZero() && (next.IsZero() || e.applied.deadline.Before(next)) {
			next = e.applied.deadline
		}
	}
	return next
}

// noticeExpiry has a pass work out again what applies once a reservation has expired.
func (s *Server) noticeExpiry() {
	if next := s.nextExpiry(); !next.IsZero() && !next.After(s.Clock.Now()) {
		s.needApply()
	}
}

// needApply has the next call of apply work out again what applies.
func (s *Server) needApply() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.needsApply = true
}
