package serve

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/internal/agenda"
)

// schedule adds a task that is due after some time.
func (s *Policies) schedule(t task, after time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scheduleLocked(t, after)
}

func (s *Policies) scheduleLocked(t task, after time.Duration) {
	s.scheduleAtLocked(t, s.clock.Now().Add(after))
}

func (s *Policies) scheduleAtLocked(t task, at time.Time) {
	next, some := s.agenda.next()
	s.agenda.add(t, at)
	if some && !at.Before(next) {
		return
	}
	select {
	case s.kick <- struct{}{}:
	default: // the worker is about to look anyway
	}
}

// work does the due tasks until ctx ends. It is the only goroutine that calls the scheduling queue.
func (s *Policies) work(ctx context.Context) {
	for ctx.Err() == nil {
		s.mu.Lock()
		now := s.clock.Now()
		due := s.agenda.due(now)
		next, some := s.agenda.next()
		s.busy = len(due) > 0
		s.mu.Unlock()
		if len(due) > 0 {
			s.do(ctx, due)
			continue
		}
		if !some {
			next = time.Time{}
		}
		agenda.Wait(ctx, s.clock, next, s.kick)
	}
}

func (s *Policies) do(ctx context.Context, due []task) {
	var wake []types.UID
	for _, t := range due {
		switch t.kind {
		case lookAtNodes:
			s.observeNodes()
		case reportAll:
			s.report()
		case fillMembers:
			s.fill(t.uid)
		case passDeadline:
			s.deadlinePassed(t.uid)
		case wakePod:
			wake = append(wake, t.uid)
		}
	}
	s.activate(ctx, wake)
}

// factsChangedLocked is called when facts that decisions depend on have changed: they are written at once, and the deadline
// may be another one.
func (s *Policies) factsChangedLocked(e *entry) {
	e.stale = true
	if s.leading {
		s.writer.Now(e.object.Latest.UID)
	}
	s.armLocked(e)
}

func (s *Policies) armLocked(e *entry) {
	var ok bool
	if e.next, ok = e.zones.NextDeadline(s.clock.Now()); ok {
		s.scheduleAtLocked(task{passDeadline, e.object.Latest.UID}, e.next.At)
	}
}

// deadlinePassed wakes the pods of a policy that may go elsewhere now, and drops expired facts.
func (s *Policies) deadlinePassed(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[uid]
	if e == nil || !e.object.Valid() {
		return
	}
	now := s.clock.Now()
	passed := !e.next.At.IsZero() && !e.next.At.After(now)
	if passed && e.next.Wakes {
		s.releaseLocked(e, bySkew)
	}
	e.stale = true
	if e.zones.Expire(now) || passed {
		s.factsChangedLocked(e)
		return
	}
	s.armLocked(e)
}
