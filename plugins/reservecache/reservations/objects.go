package reservations

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"

	"zonewise.dev/apis/v1alpha1"
)

// servedChanged turns everything on or off with the CustomResourceDefinition: without it there are no reservations.
func (s *Reservations) servedChanged(available bool) {
	s.mu.Lock()
	s.served = available
	s.publishLocked()
	s.mu.Unlock()
	s.passSoon()
}

// seen takes a reservation as the API server shows it.
func (s *Reservations) seen(o any) {
	obj, ok := object(o)
	if !ok {
		return
	}
	s.mu.Lock()
	s.served = true // AwaitStart may return before servedChanged is called
	e, known := s.entries[obj.UID]
	if !known {
		e = &entry{lost: sets.New[string](), crowded: sets.New[string]()}
		s.entries[obj.UID] = e
	}
	if !s.placing.Load() {
		// What the leader holds is in the status: one that takes over goes on from there.
		e.prefer = placedAt(obj)
	}
	changed := !known || e.obj.Generation != obj.Generation || (e.obj.DeletionTimestamp == nil) != (obj.DeletionTimestamp == nil)
	e.obj = obj
	if changed {
		e.spec, e.errs = compile(obj, s.comparisonOperators)
		e.over, e.refused, e.report = false, nil, nil
		s.publishLocked()
	}
	s.mu.Unlock()
	if changed {
		s.passSoon()
	}
	s.statusQueue.AddAfter(obj.UID, statusPause)
}

// gone forgets a reservation. A pass drops what it held.
func (s *Reservations) gone(o any) {
	obj, ok := object(o)
	if !ok {
		return
	}
	s.mu.Lock()
	delete(s.entries, obj.UID)
	s.publishLocked()
	s.mu.Unlock()
	s.passSoon()
}

// placedAt returns on which nodes the slots of a reservation were, by its status, so that a scheduler that has just
// started or taken over holds the same.
func placedAt(obj *v1alpha1.ZoneReservation) map[string]int {
	nodes := map[string]int{}
	for i := range obj.Status.Zones {
		for _, n := range obj.Status.Zones[i].Nodes {
			nodes[n.Name] += int(n.Slots)
		}
	}
	return nodes
}

// applyingLocked returns the reservations that hold capacity, the oldest first, and notes which are over.
func (s *Reservations) applyingLocked() []*entry {
	if !s.served {
		return nil
	}
	now := s.clock.Now()
	var active []*entry
	for _, e := range s.entries {
		// One that is being deleted waits for finalizers of others, and is over.
		if e.spec == nil || e.obj.DeletionTimestamp != nil {
			continue
		}
		if e.over = e.spec.expired(now); !e.over {
			active = append(active, e)
		}
	}
	slices.SortFunc(active, func(a, b *entry) int {
		if a.spec.before(b.spec) {
			return -1
		}
		return 1
	})
	return active
}

// publishLocked makes visible to pods which of them own what.
func (s *Reservations) publishLocked() {
	active := s.applyingLocked()
	specs := make([]*spec, 0, len(active))
	for _, e := range active {
		specs = append(specs, e.spec)
	}
	for _, e := range active {
		names := overlaps(e.spec, specs)
		if !slices.Equal(names, e.overlaps) {
			e.overlaps = names
			s.statusQueue.AddAfter(e.obj.UID, statusPause)
		}
	}
	s.owners.Store(indexOwners(specs))
	// Pods that were kept out may be owners now, or have lost what kept them out.
	s.freed = true
}
