package permitgate

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/plugins/permitgate/podgroup"
)

const (
	// turnLimit is how long a gang's turn excludes others. Other plugins or a long queue may delay its scout.
	turnLimit = 250 * time.Millisecond
	// retryShare limits repeated refusals to a tenth of the scheduler's time for each priority: after one, no gang of it that was
	// refused before has its turn for so many times as long as it took.
	retryShare = 9
)

// gangQueue decides which gang sends its scout next: one at a time of each priority, the oldest first. Only the worker uses it.
type gangQueue struct {
	lines map[int32]*line // by priority
	known map[types.NamespacedName]turn
}

// line is the gangs of one priority.
type line struct {
	fresh, refused []podgroup.Rank                    // those that wait, in order; refused are those that were refused before
	since          map[types.NamespacedName]time.Time // when the turns began of those that have theirs
	// retryAt is when gangs that were refused before may have their turn again.
	retryAt time.Time
}

// turn is a gang's place.
type turn struct {
	rank    podgroup.Rank
	refused bool
}

func newGangQueue() *gangQueue {
	return &gangQueue{lines: map[int32]*line{}, known: map[types.NamespacedName]turn{}}
}

// update records a queued gang. refused is true if it was refused before, has if it still has its turn: since the last look
// it may have been refused, and queued again by a change.
func (q *gangQueue) update(r podgroup.Rank, refused, has bool) {
	if known, ok := q.known[r.Key]; ok {
		_, had := q.lines[known.rank.Priority].since[r.Key]
		if had && has || !had && known == (turn{r, refused}) {
			return
		}
		q.remove(r.Key)
	}
	l := q.lines[r.Priority]
	if l == nil {
		l = &line{since: map[types.NamespacedName]time.Time{}}
		q.lines[r.Priority] = l
	}
	q.known[r.Key] = turn{r, refused}
	list := l.waiting(refused)
	at, _ := slices.BinarySearchFunc(*list, r, podgroup.Rank.Compare)
	*list = slices.Insert(*list, at, r)
}

func (l *line) waiting(refused bool) *[]podgroup.Rank {
	if refused {
		return &l.refused
	}
	return &l.fresh
}

// remove drops a gang that is no longer queued.
func (q *gangQueue) remove(key types.NamespacedName) {
	known, ok := q.known[key]
	if !ok {
		return
	}
	delete(q.known, key)
	l := q.lines[known.rank.Priority]
	list := l.waiting(known.refused)
	if at, found := slices.BinarySearchFunc(*list, known.rank, podgroup.Rank.Compare); found {
		*list = slices.Delete(*list, at, at+1)
	}
	delete(l.since, key)
	if len(l.fresh)+len(l.refused)+len(l.since) == 0 && l.retryAt.IsZero() {
		delete(q.lines, known.rank.Priority)
	}
}

// refusedAgain records how long the attempt of a gang took that was refused before. Gangs of its priority wait for that, others do
// not: the share is divided among the priorities that have gangs.
func (q *gangQueue) refusedAgain(priority int32, took time.Duration, now time.Time) {
	l := q.lines[priority]
	if l == nil {
		l = &line{since: map[types.NamespacedName]time.Time{}}
		q.lines[priority] = l
	}
	l.retryAt = now.Add(retryShare * took * time.Duration(len(q.lines)))
}

// next returns the gangs whose turn it is now, and when to ask again; zero means not by time.
func (q *gangQueue) next(now time.Time) (keys []types.NamespacedName, again time.Time) {
	wait := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for priority, l := range q.lines {
		busy := false
		for _, since := range l.since {
			if end := since.Add(turnLimit); now.Before(end) {
				busy = true
				wait(end)
			}
		}
		if !now.Before(l.retryAt) {
			l.retryAt = time.Time{}
		}
		if len(l.fresh)+len(l.refused)+len(l.since) == 0 && l.retryAt.IsZero() {
			delete(q.lines, priority)
		}
		if busy || len(l.fresh)+len(l.refused) == 0 {
			continue
		}
		r, ok := l.pick(!now.Before(l.retryAt))
		if !ok {
			wait(l.retryAt)
			continue
		}
		l.since[r.Key] = now
		keys = append(keys, r.Key)
		wait(now.Add(turnLimit))
	}
	return keys, again
}

// pick takes the first waiting gang. Gangs that were refused before count only if they may retry.
func (l *line) pick(retry bool) (r podgroup.Rank, ok bool) {
	list := &l.fresh
	if retry && len(l.refused) > 0 && (len(l.fresh) == 0 || l.refused[0].Compare(l.fresh[0]) < 0) {
		list = &l.refused
	}
	if len(*list) == 0 {
		return r, false
	}
	r = (*list)[0]
	*list = slices.Delete(*list, 0, 1)
	return r, true
}
