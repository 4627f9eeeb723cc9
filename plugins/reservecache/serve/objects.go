package serve

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/crd"
	"zonewise.dev/plugins/reservecache/placement"
)

// entry is what is kept about one reservation.
type entry struct {
	object crd.Object[*v1alpha1.ZoneReservation, *spec]
	// valid is the last valid spec that this process has seen; nil if none. It applies, also while the object's own is
	// invalid.
	valid *spec
	// applied is what the planner has of it, and at what priority; nil when it has nothing.
	applied  *spec
	priority int32
	// defaultClass is the class that pods without one get, if they get a higher priority than the reservation's.
	defaultClass    string
	defaultPriority int32
	// adopted is set once what the status said was taken over.
	adopted bool
	// expired is set once the reservation has expired.
	expired bool
	// heldBy is the lease of another scheduler that holds it, and this one does not; empty if none does.
	heldBy string
	// report is how the planner says that it stands; nil before the first time. reported is what it is about, and
	// reportedAt when making it began.
	report     *placement.Report
	reported   *spec
	reportedAt time.Time
	// causes says why nodes became too full, by node, and daemons are those of them on which it was a pod of a
	// DaemonSet. Such a pod comes to each node, a little later than slots: that is no reason to worry.
	causes  map[string]string
	daemons map[string]bool
	// survey is what the last look at its owners found.
	survey survey
	// written is when its status was last written, and wordsDue when it may be again if only its words are new; zero if
	// they are not.
	written, wordsDue time.Time
}

// servedChanged turns everything on or off with the CustomResourceDefinition: without it there are no reservations.
func (s *Server) servedChanged(available bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = available
	s.requestApplyLocked()
}

// reservationSeen takes a reservation as the API server shows it.
func (s *Server) reservationSeen(obj *v1alpha1.ZoneReservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served = true // an object may come before servedChanged is called
	e := s.entries[obj.UID]
	if e == nil {
		e = &entry{causes: map[string]string{}, daemons: map[string]bool{}}
		s.entries[obj.UID] = e
	}
	deleting := e.object.Latest != nil && e.object.Latest.DeletionTimestamp == nil && obj.DeletionTimestamp != nil
	if changed := e.object.See(obj, compile); changed || deleting {
		s.requestApplyLocked()
	}
	if e.object.Valid() {
		e.valid = e.object.Spec
	}
	s.yieldLocked(e)
	// Also when only the status has changed: it may be an older one than the last that was looked at, or not ours.
	s.writeLaterLocked(obj.UID, statusPause)
}

// yieldLocked leaves a reservation to another scheduler that writes its status, as this one does: the first by its
// lease holds. What the status said before this process is no sign of life.
func (s *Server) yieldLocked(e *entry) {
	status, mine := &e.object.Latest.Status, s.Lease()
	other := status.Scheduler
	if e.heldBy != "" || mine == "" || other == "" || other >= mine || !status.LastUpdateTime.After(s.made) {
		return
	}
	e.heldBy = other
	s.requestApplyLocked()
	klog.Background().Info("Another scheduler holds the reservation, so this one does not",
		"reservation", e.object.Latest.Name, "other", other, "lease", mine)
	if recorder := s.Handle.EventRecorder(); recorder != nil {
		recorder.Eventf(reference(e.object.Latest), nil, v1.EventTypeWarning, v1alpha1.ReasonHeldByAnother, "Reserving",
			"the scheduler with the lease %s holds the reservation, and the one with the lease %s does not: "+
				"to the pods of that one its room is free", other, mine)
	}
}

// reservationGone forgets a reservation. A pass drops what it held.
func (s *Server) reservationGone(obj *v1alpha1.ZoneReservation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[obj.UID]; e != nil && e.applied == nil {
		delete(s.entries, obj.UID)
	} else if e != nil {
		e.object, e.valid = crd.Object[*v1alpha1.ZoneReservation, *spec]{}, nil
	}
	s.requestApplyLocked()
}

// requestApplyLocked has a pass work out again what applies.
func (s *Server) requestApplyLocked() {
	s.needsApply = true
	s.RequestPass()
}

// applying is a reservation that holds capacity.
type applying struct {
	*entry
	spec *spec
	// status is the one that was last seen, and current means that it is of the spec.
	status  *v1alpha1.ZoneReservationStatus
	current bool
}

// applyingLocked returns the reservations that hold capacity, the oldest first, and notes which are over.
func (s *Server) applyingLocked() []applying {
	if !s.served {
		return nil
	}
	now := s.Clock.Now()
	var active []applying
	for _, e := range s.entries {
		// One that is being deleted waits for finalizers of others, and is over.
		if e.valid == nil || e.heldBy != "" || e.object.Latest.DeletionTimestamp != nil {
			continue
		}
		expired := e.valid.expired(now)
		if !expired {
			obj := e.object.Latest
			current := obj.Status.ObservedGeneration == obj.Generation && !obj.Status.LastUpdateTime.IsZero()
			active = append(active, applying{e, e.valid, &obj.Status, current})
		}
		if e.expired != expired {
			e.expired = expired
			s.writeLaterLocked(e.object.Latest.UID, statusPause)
		}
	}
	slices.SortFunc(active, func(a, b applying) int { return compareAge(a.spec, b.spec) })
	return active
}

// applyReservations passes the reservations that apply now to the planner and the pods. A pass calls it.
func (s *Server) applyReservations() {
	s.mu.Lock()
	if !s.needsApply {
		s.mu.Unlock()
		return
	}
	s.needsApply = false
	priority, class := s.defaultPriorityLocked()
	active := s.applyingLocked()
	var adopt []applying
	var targets []placement.Target
	specs := make([]*spec, 0, len(active))
	keep := make(map[*entry]bool, len(active))
	for _, a := range active {
		keep[a.entry] = true
		specs = append(specs, a.spec)
		d := a.spec.target(priority)
		if !a.adopted && a.current {
			d.Known = knownZones(a.status)
		}
		if a.applied != a.spec || a.priority != d.Claim.Priority {
			d.SameTerms = a.priority == d.Claim.Priority && a.spec.sameTerms(a.applied)
			a.applied, a.priority = a.spec, d.Claim.Priority
			targets = append(targets, d)
			s.writeLaterLocked(a.spec.uid, statusPause)
		}
		if a.defaultClass != class || a.defaultPriority != priority {
			a.defaultClass, a.defaultPriority = class, priority
			s.writeLaterLocked(a.spec.uid, statusPause) // it says which pods the slots are kept from
		}
		if !a.adopted {
			a.adopted = true
			adopt = append(adopt, a)
		}
	}
	reowned := slices.ContainsFunc(targets, func(d placement.Target) bool { return !d.SameTerms })
	var drop []*spec
	for uid, e := range s.entries {
		if e.applied != nil && !keep[e] {
			drop, reowned = append(drop, e.applied), true
			e.applied, e.report = nil, nil
			// Its status still has the old slots until it is written; they must not be adopted again.
			if e.object.Latest == nil {
				delete(s.entries, uid)
			}
		}
	}
	index := indexOwners(specs)
	s.mu.Unlock()
	for _, spec := range drop {
		s.Planner.Remove(spec.uid)
	}
	for i := range targets {
		s.Planner.Set(targets[i])
	}
	s.owners.Store(index)
	if reowned {
		s.Planner.OwnersChanged()
		s.nextSurvey = time.Time{}
	}
	s.Ledger.UpdateSnapshot(s.snapshot)
	s.adoptStatuses(adopt)
}

// knownZones returns the zones in which a status has slots desired: those over which they are spread, lost ones among
// them.
func knownZones(status *v1alpha1.ZoneReservationStatus) []string {
	var known []string
	for i := range status.Zones {
		if status.Zones[i].Desired > 0 {
			known = append(known, status.Zones[i].Name)
		}
	}
	return known
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
		s.mu.Lock()
		defer s.mu.Unlock()
		s.needsApply = true
	}
}
