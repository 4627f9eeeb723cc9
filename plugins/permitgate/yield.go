package permitgate

import (
	"cmp"
	"slices"
	"time"
)

// What becomes free is first for gangs of a higher priority that have been woken for it.

// pauseLocked returns how long a gang is not looked at after a look that took a time and was refused. For as long again it
// leaves what becomes free to gangs of a higher priority.
func (g *gangs) pauseLocked(e *gangEntry, took time.Duration, now time.Time) time.Duration {
	pause := lookPause(took, g.rivalsLocked(e))
	e.yieldLimit = now.Add(2 * pause)
	return pause
}

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

// yieldsUntil returns until when a gang waits because another of a higher priority is looked at first that has been woken;
// zero if it does not. woken lists the due times, see wokenLocked; it is called if the gang may have to wait.
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
