package permitgate

import (
	"time"

	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
	"zonewise.dev/plugins/permitgate/gang"
)

var (
	oldestWaiting = metrics.NewGaugeDesc(subsystem, "oldest_waiting_gang_age_seconds",
		"Time since the quorum of the gang that waits longest came to exist; 0 when no gang with a quorum waits to be bound.", nil, compbasemetrics.ALPHA)
	partlyBound = metrics.NewGaugeDesc(subsystem, "partly_bound_gangs",
		"Gangs that have been bound in part for recoveryTimeout or longer; 0 on a replica that does not lead.", nil, compbasemetrics.ALPHA)

	// collected is read when metrics are gathered: an age is only true at that moment.
	collected = metrics.NewCollector((*Shared).collect, oldestWaiting, partlyBound)
)

func (s *Shared) collect(send metrics.Send) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	send(oldestWaiting, s.oldestWaitingLocked(now).Seconds())
	send(partlyBound, s.partlyBoundLocked(now))
}

// partlyBoundLocked is how many gangs events have reported as bound in part, and still are.
func (s *Shared) partlyBoundLocked(now time.Time) (n float64) {
	select {
	case <-s.leading:
	default:
		return 0
	}
	for _, e := range s.gangs {
		if e.gang.Stranded(now) || s.depletedLocked(e, now) != "" {
			n++
		}
	}
	return n
}

// oldestWaitingLocked is for how long the gang that waits longest has had its quorum without being bound.
func (s *Shared) oldestWaitingLocked(now time.Time) time.Duration {
	var oldest time.Duration
	for _, e := range s.gangs {
		since := e.gang.ReadySince()
		if e.gang.Phase() != gang.Whole && !since.IsZero() {
			oldest = max(oldest, now.Sub(since))
		}
	}
	return oldest
}
