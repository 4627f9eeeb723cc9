package permitgate

import (
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
)

const subsystem = "permitgate"

var (
	rollbacks = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "rollbacks_total",
		Help:           "Gangs that were refused or whose round failed, by cause: no_room, shared_claim, unschedulable, cycle_failed, timeout, refused, bind_refused, not_prepared, members_left, group_gone.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"cause"})
	proposalDuration = metrics.NewHistogramVec(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "proposal_duration_seconds",
		Help:           "Time to make a proposal for a gang, by result: proposed, refused, unproven.",
		Buckets:        compbasemetrics.ExponentialBuckets(0.00005, 2, 15),
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	hintedMembers = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "hinted_members_total",
		Help:           "Members that were tried on proposed nodes, by result: placed, refused (and then tried on all nodes).",
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
