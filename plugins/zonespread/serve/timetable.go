package serve

import (
	"container/heap"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// task is something that the worker does at a certain time.
type task struct {
	kind taskKind
	uid  types.UID // of the policy or pod
}

type taskKind uint8

const (
	lookAtNodes taskKind = iota
	reportAll            // of the leader: bring all statuses up to date
	fillMembers          // of a policy
	passDeadline
	wakePod
)

// timetable has the tasks to do, each once, by time.
type timetable struct {
	heap entries
	of   map[task]*entryAt
}

type entryAt struct {
	task  task
	at    time.Time
	index int
}

func newTimetable() timetable { return timetable{of: map[task]*entryAt{}} }

// add schedules a task at a time, or keeps its earlier time.
func (a *timetable) add(t task, at time.Time) {
	e, known := a.of[t]
	switch {
	case !known:
		e = &entryAt{task: t, at: at}
		a.of[t] = e
		heap.Push(&a.heap, e)
	case at.Before(e.at):
		e.at = at
		heap.Fix(&a.heap, e.index)
	}
}

func (a *timetable) remove(t task) {
	if e, known := a.of[t]; known {
		heap.Remove(&a.heap, e.index)
		delete(a.of, t)
	}
}

// next returns the time of the next task; false if there is none.
func (a *timetable) next() (time.Time, bool) {
	if len(a.heap) == 0 {
		return time.Time{}, false
	}
	return a.heap[0].at, true
}

// due removes and returns the tasks that are due now.
func (a *timetable) due(now time.Time) []task {
	var tasks []task
	for len(a.heap) > 0 && !a.heap[0].at.After(now) {
		e := a.heap[0]
		heap.Pop(&a.heap)
		delete(a.of, e.task)
		tasks = append(tasks, e.task)
	}
	return tasks
}

// entries is a heap by time.
type entries []*entryAt

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *entries) Push(x any) {
	e := x.(*entryAt) //nolint:forcetypeassert // called by package heap with what is pushed above
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *entries) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
