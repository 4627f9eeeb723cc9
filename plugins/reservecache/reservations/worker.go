package reservations

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/plugins/reservecache/ledger"
	"zonewise.dev/plugins/reservecache/placement"
)

const (
	// gather is the least time between two passes of the worker. Many pods come and go within it in a busy cluster.
	gather = 20 * time.Millisecond
	// settle is how long a node must have been overcommitted before slots are taken off it. In a cycle slots are placed by
	// what the scheduler sees, which the ledger may hear of a moment later: that a pod has gone, for one.
	settle = 2 * time.Second
	// review is how often reservations that lack slots are looked at anew: a gang that has ceased to collect room is no
	// event.
	review = 5 * time.Second
	// idleShare is how many times as long as a pass took the worker rests, up to maxIdle.
	idleShare = 9
	maxIdle   = time.Second
)

// PodsChanged tells that the ledger heard of pods, and whether one left its node. It is cheap and may be called from any
// goroutine.
func (s *Reservations) PodsChanged(left bool) {
	if !s.placing.Load() {
		return
	}
	if left {
		s.room.Store(true)
	}
	s.wakeWorker()
}

// NodesChanged tells that nodes changed in a way that matters to slots: see [TellsOfSlots].
func (s *Reservations) NodesChanged() { s.passSoon() }

// passSoon has the worker look at all reservations.
func (s *Reservations) passSoon() {
	s.due.Store(true)
	s.wakeWorker()
}

func (s *Reservations) wakeWorker() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// work looks at the reservations until ctx ends, when something happened and when one expires.
func (s *Reservations) work(ctx context.Context) {
	timer := s.clock.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.kick:
		case <-timer.C():
			s.timeUp()
		}
		began := s.clock.Now()
		if s.placing.Load() {
			s.pass()
			s.wake(ctx)
			if again := s.nextLook(); again > 0 {
				timer.Reset(again)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.clock.After(min(max(gather, idleShare*s.clock.Since(began)), maxIdle)):
		}
	}
}

// wake tells the waker what has happened since the last call.
func (s *Reservations) wake(ctx context.Context) {
	s.mu.Lock()
	freed, placed := s.freed, s.placed
	s.freed, s.placed = false, map[ledger.ClaimID]bool{}
	s.mu.Unlock()
	if freed {
		s.waker.Freed(ctx)
	} else if len(placed) > 0 {
		s.waker.Placed(ctx, placed)
	}
}

// pass brings the slots in line with the reservations and the cluster.
func (s *Reservations) pass() {
	s.passing.Lock()
	defer s.passing.Unlock()
	due, room := s.due.Swap(false), s.room.Swap(false)
	s.takeNews()
	touched := s.touched
	if due {
		s.demandAll()
	}
	if s.weigh(touched, due) {
		s.takeStock(func(uid types.UID, _ *entry) bool { return touched[uid] })
		if room {
			s.room.Store(true)
		}
		return
	}
	if !due && len(touched) == 0 && (!room || !s.unfilled.Load()) {
		return
	}
	s.touched = map[types.UID]bool{}
	result := s.keeper.Reconcile(s.nominated.onNodes(s.ledger))
	s.note(result)
	for _, id := range result.Changed {
		touched[id.UID] = true
	}
	s.takeStock(func(uid types.UID, e *entry) bool {
		return due || touched[uid] || e.report == nil || e.report.Missing > 0
	})
}

// demandAll tells the keeper what is wanted now.
func (s *Reservations) demandAll() {
	s.mu.Lock()
	s.expireLocked()
	active := s.applyingLocked()
	demands := make([]placement.Demand, 0, len(active))
	keep := make(map[types.UID]*spec, len(active))
	for _, e := range active {
		keep[e.obj.UID] = e.spec
		if s.demands[e.obj.UID] != e.spec {
			demands = append(demands, e.demand())
		}
	}
	s.mu.Unlock()
	freed := false
	for uid, spec := range s.demands {
		if keep[uid] == nil {
			s.keeper.Remove(spec.id)
			freed = true
		}
	}
	for i := range demands {
		if err := s.keeper.Set(demands[i]); err != nil {
			s.refuse(demands[i].Claim.ID.UID, err)
		}
	}
	s.demands = keep
	if freed {
		s.mu.Lock()
		s.freed = true
		s.mu.Unlock()
	}
}

// refuse notes that the keeper did not take a reservation.
func (s *Reservations) refuse(uid types.UID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[uid]; e != nil {
		e.refused = err
		s.statusQueue.AddAfter(uid, statusPause)
	}
}

// takeStock asks the keeper how the reservations stand that have news.
func (s *Reservations) takeStock(news func(types.UID, *entry) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unfilled := false
	for uid, spec := range s.demands {
		e := s.entries[uid]
		if e == nil || e.spec != spec {
			continue // gone or changed; a pass is due
		}
		if news(uid, e) {
			if report, ok := s.keeper.Report(spec.id); ok {
				e.report = &report
				s.statusQueue.AddAfter(uid, statusPause)
			}
		}
		if e.report == nil || e.report.Missing > 0 {
			unfilled = true
		} else {
			clear(e.lost)
			clear(e.crowded)
		}
	}
	s.unfilled.Store(unfilled)
}

// demand is what the keeper is told of a reservation.
func (e *entry) demand() placement.Demand {
	d := placement.Demand{
		Claim: ledger.Claim{
			ID:       e.spec.id,
			Name:     claimName(e.spec.name),
			Priority: e.spec.priority,
			Mode:     e.spec.mode,
			Since:    e.spec.created,
		},
		Slot:   e.spec.requests,
		Fit:    e.spec.fit,
		Prefer: e.prefer,
	}
	if !e.spec.shift {
		d.OnZoneLoss = placement.Keep
	}
	for _, z := range e.spec.zones {
		d.Zones = append(d.Zones, placement.Zone{Name: z.Name, Slots: int(z.Slots)})
	}
	if len(d.Zones) == 0 {
		d.Slots = e.spec.slots
	}
	return d
}

// note takes in what the keeper did, and reports whether it did anything.
func (s *Reservations) note(r placement.Result) bool {
	if len(r.Freed)+len(r.Changed) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.freed = s.freed || len(r.Freed) > 0
	for _, id := range r.Changed {
		s.placed[id] = true
		s.statusQueue.AddAfter(id.UID, statusPause)
	}
	return true
}

// takeNews takes in what the ledger tells of claims.
func (s *Reservations) takeNews() {
	news := s.ledger.TakeNews()
	if len(news) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range news {
		e := s.entries[news[i].Claim.UID]
		if news[i].Claim.Kind != ledger.Reservation || e == nil {
			continue
		}
		s.touched[e.obj.UID] = true
		for _, loss := range news[i].Lost {
			e.lost.Insert(loss.Node)
		}
	}
}

// weigh looks for slots that have no room, of the touched reservations and of those that had such slots before. It reports
// whether there are any that have not been so for long, which the keeper would give up too early, and adds
// reservations whose slots the keeper is to give up to the touched ones. Those it makes known by an Event: when there is
// room elsewhere, nothing else will tell of it. With now the keeper is about to give them up, however fresh, since
// a reservation or a node has changed.
func (s *Reservations) weigh(touched map[types.UID]bool, now bool) (fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.clock.Now()
	for uid, spec := range s.demands {
		e := s.entries[uid]
		if e == nil || !touched[uid] && len(e.overfull) == 0 {
			continue
		}
		overfull := map[string]time.Time{}
		status, _ := s.ledger.Claim(spec.id)
		for i := range status.Holds {
			h := &status.Holds[i]
			if h.Excess == 0 {
				continue
			}
			since, known := e.overfull[h.Node]
			if !known {
				since = at
			}
			if !now && at.Sub(since) < settle {
				overfull[h.Node] = since
				fresh = true
				continue
			}
			touched[uid] = true
			e.crowded.Insert(h.Node)
			if recorder := s.handle.EventRecorder(); recorder != nil {
				recorder.Eventf(reference(e.obj), nil, v1.EventTypeWarning, v1alpha1.ReasonOvercommitted, "Reserving",
					"%d of %d slots on node %s have lost their room to pods of a higher priority or of another scheduler, or the node has shrunk", h.Excess, h.Slots, h.Node)
			}
		}
		e.overfull = overfull
	}
	return fresh
}

// nextLook returns when a pass is due whatever happens, 0 for never.
func (s *Reservations) nextLook() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, next := s.clock.Now(), time.Duration(0)
	sooner := func(d time.Duration) {
		if next == 0 || d < next {
			next = max(d, time.Millisecond)
		}
	}
	if s.unfilled.Load() {
		sooner(review)
	}
	for _, e := range s.entries {
		if e.spec != nil && !e.over && !e.spec.deadline.IsZero() {
			sooner(e.spec.deadline.Sub(now))
		}
		for _, since := range e.overfull {
			sooner(since.Add(settle).Sub(now))
		}
	}
	return next
}

// timeUp makes due what the timer was for: that a reservation has expired, or that some lack slots. What is overfull is
// weighed in any pass.
func (s *Reservations) timeUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room.Store(true)
	now := s.clock.Now()
	for _, e := range s.entries {
		if e.spec != nil && !e.over && e.spec.expired(now) {
			s.due.Store(true)
		}
	}
}

// expireLocked makes visible to pods that reservations have expired since the last call.
func (s *Reservations) expireLocked() {
	now := s.clock.Now()
	expired := false
	for _, e := range s.entries {
		if e.spec != nil && !e.over && e.spec.expired(now) {
			expired = true
			s.statusQueue.AddAfter(e.obj.UID, statusPause)
		}
	}
	if expired {
		s.publishLocked()
	}
}
