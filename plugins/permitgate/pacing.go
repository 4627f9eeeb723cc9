package permitgate

import (
	"cmp"
	"slices"
	"time"
)

// Looks at gangs that are refused take at most a share of the scheduler's time, those at all gangs of a priority
// together: after a refusal, a gang is looked at again after so many times as long as the look took, times the number
// of gangs of its priority and of higher ones that are refused. So it is for the cycles of members that find no nodes.
const (
	// lookShare makes it a tenth. A look costs lookCost at least, for what the rest of the cycle takes.
	lookShare = 10
	lookCost  = time.Millisecond
	// lookAtLeast and lookAtMost bound the pause.
	lookAtLeast = 100 * time.Millisecond
	lookAtMost  = time.Minute

	// searchShare makes the searches for victims a fiftieth. searchAtMost bounds the pause where there are very many
	// gangs.
	searchShare  = 50
	searchAtMost = 10 * time.Minute
	// evictPause is how long a gang evicts no pods after its first release that failed.
	evictPause = time.Minute
)

// lookPause is how long a gang is not looked at after it was refused, or has gathered without success, whatever becomes
// free, beside so many gangs that are refused.
func lookPause(took time.Duration, refused int) time.Duration {
	return min(max(lookShare*max(took, lookCost)*time.Duration(max(refused, 1)), lookAtLeast), lookAtMost)
}

// searchPause is how long a gang does not search for victims after it has found none, beside so many gangs that are
// refused.
func searchPause(took time.Duration, refused int) time.Duration {
	return max(searchShare*took, min(searchShare*took*time.Duration(refused), searchAtMost))
}

// pauseLocked returns how long a gang is not looked at after a look that took a time and was refused. For as long again
// it leaves what becomes free to gangs of a higher priority.
func (g *gangs) pauseLocked(e *gangEntry, took time.Duration, now time.Time) time.Duration {
	pause := lookPause(took, g.rivalsLocked(e))
	e.yieldLimit = now.Add(2 * pause)
	return pause
}

// rivalsLocked counts the refused gangs that have a gang's priority or a higher one, the gang itself among them.
func (g *gangs) rivalsLocked(e *gangEntry) (n int) {
	priority := e.lowestPriority()
	for other := range g.refused {
		if other != e && other.lowestPriority() >= priority {
			n++
		}
	}
	return n + 1
}

// What becomes free is first for gangs of a higher priority that have been woken for it.

// yieldStep is how long a gang waits at least for another that is about to be looked at.
const yieldStep = time.Millisecond

// dueTime is when the first gang of a priority or a higher one is looked at that has been woken.
type dueTime struct {
	priority int32
	at       time.Time
}

// wokenLocked lists the due times of all priorities, the highest first.
func (g *gangs) wokenLocked() (due []dueTime) {
	for e := range g.refused {
		if at, woken := e.retryAt(); woken {
			due = append(due, dueTime{e.lowestPriority(), at})
		}
	}
	slices.SortFunc(due, func(a, b dueTime) int { return cmp.Compare(b.priority, a.priority) })
	for i := 1; i < len(due); i++ {
		if due[i-1].at.Before(due[i].at) {
			due[i].at = due[i-1].at
		}
	}
	return due
}

// yieldsUntil returns until when a gang waits because another of a higher priority is looked at first that has been
// woken; zero if it does not. woken lists the due times, see wokenLocked; it is called if the gang may have to wait.
func (e *gangEntry) yieldsUntil(woken func() []dueTime, now time.Time) (until time.Time) {
	if !now.Before(e.yieldLimit) {
		return until
	}
	due := woken()
	higher, _ := slices.BinarySearchFunc(due, e.lowestPriority(), func(d dueTime, priority int32) int { return cmp.Compare(priority, d.priority) })
	switch {
	case higher == 0 || !due[higher-1].at.Before(e.yieldLimit):
		return until
	case now.Before(due[higher-1].at):
		return due[higher-1].at
	}
	return now.Add(yieldStep) // its turn has come, but has not been taken yet
}
