package permitgate

import (
	"slices"
	"time"

	"zonewise.dev/plugins/permitgate/podgroup"
)

// admitLimit is for how long a gang that is admitted excludes others. Other plugins or a long queue may delay its
// scout.
const admitLimit = 250 * time.Millisecond

// Looks at gangs that are refused take at most a share of the scheduler's time, all of them together: after a refusal,
// a gang is looked at again after so many times as long as the look took, times the number of gangs that are refused.
const (
	// lookShare makes it a tenth. A look costs lookCost at least, for what the rest of the cycle takes.
	lookShare = 10
	lookCost  = time.Millisecond
	// lookAtLeast and lookAtMost bound the pause.
	lookAtLeast = 100 * time.Millisecond
	lookAtMost  = time.Minute

	// gatherShare makes the cycles of members that gather in vain a tenth, and idleGatherShare a hundredth of those
	// that gather again although nothing has happened that may help.
	gatherShare, idleGatherShare = 10, 100

	// searchShare makes the searches for victims a fiftieth. searchAtMost bounds the pause where there are very many
	// gangs.
	searchShare  = 50
	searchAtMost = 10 * time.Minute
)

// lookPause is how long a gang is not looked at after it was refused, whatever becomes free, beside so many gangs that
// are refused.
func lookPause(took time.Duration, refused int) time.Duration {
	return min(max(lookShare*max(took, lookCost)*time.Duration(max(refused, 1)), lookAtLeast), lookAtMost)
}

// gatherPauses are how long a gang does not gather again after it did so in vain, beside so many gangs that are refused:
// whatever may help it, and if nothing does.
func gatherPauses(cost time.Duration, refused int) (pause, idle time.Duration) {
	all := cost * time.Duration(max(refused, 1))
	return min(gatherShare*all, lookAtMost), min(idleGatherShare*all, lookAtMost)
}

// searchPause is how long a gang does not search for victims after it did so in vain, beside so many gangs that have.
func searchPause(took time.Duration, failed int) time.Duration {
	return max(searchShare*took, min(searchShare*took*time.Duration(failed), searchAtMost))
}

// gangQueue decides which gang is admitted next: for each priority one at a time, in the order of their ranks. Only the
// worker uses it.
type gangQueue struct {
	lines map[int32]*line // by priority
	ranks map[gangID]podgroup.Rank
}

// line has the gangs of one priority.
type line struct {
	ready    []podgroup.Rank      // those that wait, in order
	admitted map[gangID]time.Time // the others, with the time
}

func newGangQueue() *gangQueue {
	return &gangQueue{lines: map[int32]*line{}, ranks: map[gangID]podgroup.Rank{}}
}

// update records a gang that is ready. admitted is true if it still is: since it was admitted it may have been refused,
// and have become ready again by a change.
func (q *gangQueue) update(rank podgroup.Rank, admitted bool) {
	if known, ok := q.ranks[rank.ID]; ok {
		_, admittedBefore := q.lines[known.Priority].admitted[rank.ID]
		if admittedBefore && admitted || !admittedBefore && known == rank {
			return
		}
		q.remove(rank.ID)
	}
	l := q.lines[rank.Priority]
	if l == nil {
		l = &line{admitted: map[gangID]time.Time{}}
		q.lines[rank.Priority] = l
	}
	q.ranks[rank.ID] = rank
	at, _ := slices.BinarySearchFunc(l.ready, rank, podgroup.Rank.Compare)
	l.ready = slices.Insert(l.ready, at, rank)
}

// remove drops a gang that is not ready any more.
func (q *gangQueue) remove(id gangID) {
	rank, ok := q.ranks[id]
	if !ok {
		return
	}
	delete(q.ranks, id)
	l := q.lines[rank.Priority]
	if at, found := slices.BinarySearchFunc(l.ready, rank, podgroup.Rank.Compare); found {
		l.ready = slices.Delete(l.ready, at, at+1)
	}
	delete(l.admitted, id)
	if len(l.ready)+len(l.admitted) == 0 {
		delete(q.lines, rank.Priority)
	}
}

// next returns the gangs to be admitted now, and when to ask again; zero means not by time.
func (q *gangQueue) next(now time.Time) (ids []gangID, again time.Time) {
	wait := func(at time.Time) {
		if again.IsZero() || at.Before(again) {
			again = at
		}
	}
	for _, l := range q.lines {
		busy := false
		for _, since := range l.admitted {
			if end := since.Add(admitLimit); now.Before(end) {
				busy = true
				wait(end)
			}
		}
		if busy || len(l.ready) == 0 {
			continue
		}
		first := l.ready[0].ID
		l.ready = slices.Delete(l.ready, 0, 1)
		l.admitted[first] = now
		ids = append(ids, first)
		wait(now.Add(admitLimit))
	}
	return ids, again
}
