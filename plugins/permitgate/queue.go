package permitgate

import (
	"slices"
	"time"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// admitLimit is for how long a gang that is admitted excludes others. Other plugins or a long queue may delay its
// scout.
const admitLimit = 250 * time.Millisecond

// gangQueue decides which gang is admitted next: one at a time, in the order of their ranks, but none waits for one of
// a lower priority. The lock of gangs guards it.
type gangQueue struct {
	ready    []podgroup.Rank // those that wait, in order
	admitted map[gangID]admission
	ranks    map[gangID]podgroup.Rank // of both
}

// admission is when a gang was admitted that is still to be looked at.
type admission struct {
	priority int32
	at       time.Time
}

func newGangQueue() *gangQueue {
	return &gangQueue{admitted: map[gangID]admission{}, ranks: map[gangID]podgroup.Rank{}}
}

// update records a gang that is ready. admitted is true if it still is: since it was admitted it may have been refused,
// and have become ready again by a change.
func (q *gangQueue) update(rank podgroup.Rank, admitted bool) {
	if known, ok := q.ranks[rank.ID]; ok {
		_, admittedBefore := q.admitted[rank.ID]
		if admittedBefore && admitted || !admittedBefore && known == rank {
			return
		}
		q.remove(rank.ID)
	}
	q.ranks[rank.ID] = rank
	at, _ := slices.BinarySearchFunc(q.ready, rank, podgroup.Rank.Compare)
	q.ready = slices.Insert(q.ready, at, rank)
}

// remove drops a gang that is not ready any more.
func (q *gangQueue) remove(id gangID) {
	rank, ok := q.ranks[id]
	if !ok {
		return
	}
	delete(q.ranks, id)
	delete(q.admitted, id)
	if at, found := slices.BinarySearchFunc(q.ready, rank, podgroup.Rank.Compare); found {
		q.ready = slices.Delete(q.ready, at, at+1)
	}
}

// next returns the gang to be admitted now, and when to ask again; zero means not by time. yields returns until when a
// gang leaves what has become free to others; zero if it does not.
func (q *gangQueue) next(now time.Time, yields func(id gangID) time.Time) (first gangID, found bool, again time.Time) {
	wait := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for i, rank := range q.ready {
		busy := false
		for _, a := range q.admitted {
			if end := a.at.Add(admitLimit); a.priority >= rank.Priority && now.Before(end) {
				busy = true
				wait(end)
			}
		}
		if busy {
			break // so it is for those that follow
		}
		if until := yields(rank.ID); !until.IsZero() {
			wait(until)
			continue
		}
		q.ready = slices.Delete(q.ready, i, i+1)
		q.admitted[rank.ID] = admission{rank.Priority, now}
		wait(now.Add(admitLimit))
		return rank.ID, true, again
	}
	return first, false, again
}
