package permitgate

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// turnLimit is how long a gang has its turn to itself. A scout may be kept from its cycle by other plugins or by a long queue.
	turnLimit = 250 * time.Millisecond
	// retryShare is how many times as long as the last refusal of a gang that had been refused before took no other such
	// gang has its turn: looking again in vain takes a tenth of the scheduler's time at most.
	retryShare = 9
)

// turns says which gang is next to be proposed: of each priority one at a time, the oldest first. Only the worker uses it.
type turns struct {
	lines map[int32]*line // by priority
	known map[types.NamespacedName]turn
	// retryAt is when a gang may have its turn again that has been refused before.
	retryAt time.Time
}

// line is the gangs of one priority.
type line struct {
	fresh, refused []rank // those that wait, in order; refused are those that were refused before
	since          map[types.NamespacedName]time.Time
}

// turn is where a gang stands.
type turn struct {
	rank    rank
	refused bool
	has     bool // its turn
}

func newTurns() *turns {
	return &turns{lines: map[int32]*line{}, known: map[types.NamespacedName]turn{}}
}

// update takes a gang in that is queued. refused tells that it was refused before, has that it has its turn still: it may have
// been refused, and be queued again by a change, since it was looked at last.
func (t *turns) update(r rank, refused, has bool) {
	switch known, ok := t.known[r.key]; {
	case ok && known.has && has, ok && !known.has && known.rank == r && known.refused == refused:
		return
	case ok:
		t.remove(r.key)
	}
	l := t.lines[r.priority]
	if l == nil {
		l = &line{since: map[types.NamespacedName]time.Time{}}
		t.lines[r.priority] = l
	}
	t.known[r.key] = turn{rank: r, refused: refused}
	list := l.waiting(refused)
	at, _ := slices.BinarySearchFunc(*list, r, rank.compare)
	*list = slices.Insert(*list, at, r)
}

func (l *line) waiting(refused bool) *[]rank {
	if refused {
		return &l.refused
	}
	return &l.fresh
}

// remove drops a gang that is not queued any more.
func (t *turns) remove(key types.NamespacedName) {
	known, ok := t.known[key]
	if !ok {
		return
	}
	delete(t.known, key)
	l := t.lines[known.rank.priority]
	list := l.waiting(known.refused)
	if at, found := slices.BinarySearchFunc(*list, known.rank, rank.compare); found {
		*list = slices.Delete(*list, at, at+1)
	}
	delete(l.since, key)
	if len(l.fresh)+len(l.refused)+len(l.since) == 0 {
		delete(t.lines, known.rank.priority)
	}
}

// looked notes that a gang that had been refused before was refused again, and how long that took to find out.
func (t *turns) looked(took time.Duration, now time.Time) { t.retryAt = now.Add(retryShare * took) }

// next returns the gangs whose turn it is now, and when to ask again; zero means not by time.
func (t *turns) next(now time.Time) (keys []types.NamespacedName, again time.Time) {
	wait := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for _, l := range t.lines {
		busy := false
		for _, since := range l.since {
			if end := since.Add(turnLimit); now.Before(end) {
				busy = true
				wait(end)
			}
		}
		if busy || len(l.fresh)+len(l.refused) == 0 {
			continue
		}
		r, ok := l.pick(!now.Before(t.retryAt))
		if !ok {
			wait(t.retryAt)
			continue
		}
		known := t.known[r.key]
		known.has = true
		t.known[r.key] = known
		l.since[r.key] = now
		keys = append(keys, r.key)
		wait(now.Add(turnLimit))
	}
	return keys, again
}

// pick takes the first of those that wait, of those that were refused before only when they may retry.
func (l *line) pick(retry bool) (r rank, ok bool) {
	list := &l.fresh
	if retry && len(l.refused) > 0 && (len(l.fresh) == 0 || l.refused[0].compare(l.fresh[0]) < 0) {
		list = &l.refused
	}
	if len(*list) == 0 {
		return r, false
	}
	r = (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return r, true
}
