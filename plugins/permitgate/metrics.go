package permitgate

import (
	"time"

	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
	"zonewise.dev/plugins/permitgate/gang"
)

const subsystem = "permitgate"

var (
	rollbacks = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "rollbacks_total",
		Help:           "Gangs that were refused or whose round failed, by cause: no_room, shared_claim, unschedulable, cycle_failed, timeout, refused, bind_refused, not_prepared, node_gone, members_left, group_gone, other_group.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"cause"})
	proposalDuration = metrics.NewHistogramVec(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "proposal_duration_seconds",
		Help:           "Time to make a proposal for a gang, by result: proposed, refused, unproven.",
		Buckets:        compbasemetrics.ExponentialBuckets(0.00005, 2, 15),
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	timeToWhole = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "time_to_whole_seconds",
		Help:           "Time from the moment a gang had a quorum of live members until it was bound.",
		Buckets:        compbasemetrics.ExponentialBuckets(0.01, 2, 17),
		StabilityLevel: compbasemetrics.ALPHA,
	})

	gangsByPhase = metrics.NewGaugeDesc(subsystem, "gangs",
		"Gangs by phase: Pending (PodGroup or members missing), Queued (waiting to be admitted), Gathering, Waiting (members hold nodes), Releasing, Whole, Backoff.",
		[]string{"phase"}, compbasemetrics.ALPHA)
	waitingMembers = metrics.NewGaugeDesc(subsystem, "waiting_members",
		"Members that hold a node in Permit while their gang lacks others.", nil, compbasemetrics.ALPHA)
	oldestWaiting = metrics.NewGaugeDesc(subsystem, "oldest_waiting_gang_age_seconds",
		"Time for which the longest waiting gang has had its quorum without being bound; 0 when no gang with a quorum waits.", nil, compbasemetrics.ALPHA)
	partlyBound = metrics.NewGaugeDesc(subsystem, "partly_bound_gangs",
		"Gangs that have been bound in part for recoveryTimeout or longer; 0 on a replica that does not lead.", nil, compbasemetrics.ALPHA)
)

// collected is computed when metrics are gathered.
var collected = metrics.NewCollector((*Shared).collect, gangsByPhase, waitingMembers, oldestWaiting, partlyBound)

func (s *Shared) collect(send metrics.Send) {
	now := s.clock.Now()
	phases, waiting, oldest := map[gang.Phase]int{}, 0, time.Duration(0)
	s.gangs.each(func(e *gangEntry) {
		if e.id.Native && !e.guarded() {
			return
		}
		phases[e.gang.Phase()]++
		_, waits, _ := e.gang.Counts()
		waiting += waits
		if since := e.gang.ReadySince(); e.gang.Phase() != gang.Whole && !since.IsZero() {
			oldest = max(oldest, now.Sub(since))
		}
	})
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	for _, phase := range gang.Phases {
		send(gangsByPhase, float64(phases[phase]), phase.String())
	}
	send(waitingMembers, float64(waiting))
	send(oldestWaiting, oldest.Seconds())
	if server != nil {
		send(partlyBound, float64(server.PartlyBound()))
	}
}
