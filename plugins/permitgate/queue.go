package permitgate

import (
	"maps"
	"slices"
	"time"

	"zonewise.dev/plugins/permitgate/podgroup"
)

const (
	// admitLimit is for how long a gang that is admitted excludes others. Other plugins or a long queue may delay its
	// scout.
	admitLimit = 250 * time.Millisecond
	// lookShare is for how many times as long as looks at gangs that still do not fit no other follows for freed room,
	// so that they take a tenth of the scheduler's time. A look costs lookCost at least, for what the rest of the cycle takes;
	// lookAtMost bounds what follows one.
	lookShare  = 10
	lookCost   = time.Millisecond
	lookAtMost = time.Minute
	// overtakenAtMost is for how long a gang whose own backoff is over leaves what has become free to gangs of a higher
	// priority that wait for their turn.
	overtakenAtMost = time.Second
)

// gangQueue decides which gang is looked at next: one at a time, in the order of their ranks, but none waits for one of
// a lower priority. Gangs that freed room has woken wait for their turn in the time that such looks may take; a gang
// whose own backoff is over, or that has changed, does not. The lock of gangs guards it.
type gangQueue struct {
	ready    []turn // of those that wait, in the order of their ranks
	admitted map[gangID]admission
	turns    map[gangID]turn // of both
	// rests are until when no gang of a priority or a lower one has its turn.
	rests map[int32]time.Time
}

// turn is a gang's place in the queue. Before earliest it has no turn, and from latest on it waits for none.
type turn struct {
	podgroup.Rank
	earliest, latest time.Time
}

// admission is when a gang was admitted that is still to be looked at.
type admission struct {
	priority int32
	at       time.Time
}

func newGangQueue() *gangQueue {
	return &gangQueue{admitted: map[gangID]admission{}, turns: map[gangID]turn{}, rests: map[int32]time.Time{}}
}

// update records a gang that is ready. admitted is true if it still is: since it was admitted it may have been refused,
// and have become ready again by a change.
func (q *gangQueue) update(t turn, admitted bool) {
	if known, ok := q.turns[t.ID]; ok {
		_, admittedBefore := q.admitted[t.ID]
		if admittedBefore && admitted || !admittedBefore && known == t {
			return
		}
		q.remove(t.ID)
	}
	q.turns[t.ID] = t
	at, _ := slices.BinarySearchFunc(q.ready, t, turn.compare)
	q.ready = slices.Insert(q.ready, at, t)
}

func (t turn) compare(other turn) int { return t.Rank.Compare(other.Rank) }

// remove drops a gang that is not ready any more.
func (q *gangQueue) remove(id gangID) {
	t, ok := q.turns[id]
	if !ok {
		return
	}
	delete(q.turns, id)
	delete(q.admitted, id)
	if at, found := slices.BinarySearchFunc(q.ready, t, turn.compare); found {
		q.ready = slices.Delete(q.ready, at, at+1)
	}
}

// rest has gangs of a priority and of lower ones wait for their turn after a look that took a time at a gang
// that still does not fit.
func (q *gangQueue) rest(priority int32, took time.Duration, now time.Time) {
	maps.DeleteFunc(q.rests, func(_ int32, end time.Time) bool { return !now.Before(end) })
	from := q.rests[priority]
	if from.Before(now) {
		from = now
	}
	q.rests[priority] = from.Add(min(lookShare*max(took, lookCost), lookAtMost))
}

// restsUntil returns until when no gang of a priority has its turn.
func (q *gangQueue) restsUntil(priority int32) (until time.Time) {
	for higher, end := range q.rests {
		if higher >= priority && end.After(until) {
			until = end
		}
	}
	return until
}

// next returns the gang to be admitted now, and when to ask again; zero means not by time.
func (q *gangQueue) next(now time.Time) (first gangID, found bool, again time.Time) {
	wait := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for i, t := range q.ready {
		busy := false
		for _, a := range q.admitted {
			if end := a.at.Add(admitLimit); a.priority >= t.Priority && now.Before(end) {
				busy = true
				wait(end)
			}
		}
		if busy {
			break // so it is for those that follow
		}
		if now.Before(t.earliest) {
			wait(t.earliest)
			continue
		}
		rests, latest := q.restsUntil(t.Priority), t.latest
		if q.ready[0].Priority > t.Priority && !latest.IsZero() { // that one waits for its turn
			latest = latest.Add(overtakenAtMost)
		}
		if now.Before(rests) && now.Before(latest) {
			wait(rests)
			wait(latest)
			continue
		}
		q.ready = slices.Delete(q.ready, i, i+1)
		q.admitted[t.ID] = admission{t.Priority, now}
		wait(now.Add(admitLimit))
		return t.ID, true, again
	}
	return first, false, again
}
