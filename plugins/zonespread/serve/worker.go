package serve

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// task is something that the worker does at a certain time.
type task struct {
	kind taskKind
	uid  types.UID // of the policy, if it is about one
}

type taskKind uint8

const (
	observeNodes taskKind = iota
	reportAll             // of the leader: bring all statuses up to date
	fillMatching
	passDeadline
)

// schedule adds a task that is due after some time, if it is not due earlier anyway.
func (s *Policies) schedule(t task, after time.Duration) {
	s.agenda.AddAt(t, s.clock.Now().Add(after))
}

// do does a task. It is called by the worker alone.
func (s *Policies) do(t task) {
	switch t.kind {
	case observeNodes:
		s.observeNodes()
	case reportAll:
		s.report()
	case fillMatching:
		s.fillMatching(t.uid)
	case passDeadline:
		s.deadlinePassed(t.uid)
	}
}

// factsChangedLocked is called when facts that decisions depend on have changed: they are written at once, and the
// deadline may be another one.
func (s *Policies) factsChangedLocked(e *entry) {
	e.stale = true
	if s.leading {
		s.writer.Now(e.object.Latest.Namespace, e.object.Latest.UID)
	}
	s.armLocked(e)
}

// armLocked schedules the next deadline of a policy's zones. If one has passed since the last call, it wakes the pods
// that the policy refused: they may go elsewhere.
func (s *Policies) armLocked(e *entry) {
	now := s.clock.Now()
	for d, ok := e.zones.NextDeadline(e.lastChecked); ok && !d.At.After(now); d, ok = e.zones.NextDeadline(d.At) {
		if d.Wakes {
			s.wakeAllLocked(e)
			break
		}
	}
	e.lastChecked = now
	next, ok := e.zones.NextDeadline(now)
	e.nextDeadline = next
	if ok {
		s.agenda.AddAt(task{passDeadline, e.object.Latest.UID}, next.At)
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
	passed := !e.nextDeadline.At.IsZero() && !e.nextDeadline.At.After(now)
	e.stale = true
	if e.zones.Expire(now) || passed {
		s.factsChangedLocked(e)
		return
	}
	s.armLocked(e)
}
