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
	}
}

// factsChangedLocked is called when facts that decisions depend on have changed: they are written at once.
func (s *Policies) factsChangedLocked(e *entry) {
	e.stale = true
	if s.leading {
		s.writer.Now(e.object.Latest.Namespace, e.object.Latest.UID)
	}
}
