package permitgate

import (
	compbasemetrics "k8s.io/component-base/metrics"

	"zonewise.dev/internal/metrics"
	"zonewise.dev/plugins/permitgate/gang"
)

const subsystem = "permitgate"

var (
	gangsByPhase = metrics.NewGaugeVec(&compbasemetrics.GaugeOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "gangs",
		Help:           "Gangs by phase: Pending (PodGroup or members missing), Gathering, Waiting (members hold nodes), Releasing, Whole, Backoff.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"phase"})
	waitingMembers = metrics.NewGauge(&compbasemetrics.GaugeOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "waiting_members",
		Help:           "Members that hold a node in Permit while their gang lacks others.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	rollbacks = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "rollbacks_total",
		Help:           "Rounds of a gang that failed, by cause: unschedulable, timeout, refused, bind_refused, not_prepared, recovery, members_left, group_gone.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"cause"})
	rehearsals = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "bind_rehearsals_total",
		Help:           "Rehearsed binds of waiting members, by result: passed, refused.",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	planDuration = metrics.NewHistogramVec(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "plan_duration_seconds",
		Help:           "Time to plan a gang and to take its slots, by result: planned, refused.",
		Buckets:        compbasemetrics.ExponentialBuckets(0.0001, 2, 15),
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	recoveryEvictions = metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "recovery_evictions_total",
		Help:           "Members evicted because their gang stayed bound in part.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	preemptions = metrics.NewCounterVec(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "preemptions_total",
		Help:           "Preemptions by gangs, by what became of them: begun, placed (the gang has a plan), given_up (it does not stand any more, or took too long).",
		StabilityLevel: compbasemetrics.ALPHA,
	}, []string{"result"})
	preemptedPods = metrics.NewCounter(&compbasemetrics.CounterOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "preempted_pods_total",
		Help:           "Pods evicted to make room for a gang.",
		StabilityLevel: compbasemetrics.ALPHA,
	})
	timeToWhole = metrics.NewHistogram(&compbasemetrics.HistogramOpts{
		Namespace: metrics.Namespace, Subsystem: subsystem, Name: "time_to_whole_seconds",
		Help:           "Time from the moment that a gang's quorum of live members existed until it was bound.",
		Buckets:        compbasemetrics.ExponentialBuckets(0.01, 2, 17),
		StabilityLevel: compbasemetrics.ALPHA,
	})
)

// seen is what the gauges count of one gang. The gauges belong to the process, which may run several
// schedulers in tests, so that they are changed by differences.
type seen struct {
	counted bool
	phase   gang.Phase
	waiting int
}

func (s *seen) update(g *gang.Gang) {
	_, waiting, _ := g.Counts()
	if phase := g.Phase(); !s.counted || phase != s.phase {
		if s.counted {
			gangsByPhase.WithLabelValues(s.phase.String()).Dec()
		}
		gangsByPhase.WithLabelValues(phase.String()).Inc()
		s.counted, s.phase = true, phase
	}
	if waiting != s.waiting {
		waitingMembers.Add(float64(waiting - s.waiting))
		s.waiting = waiting
	}
}

func (s *seen) leave() {
	if s.counted {
		gangsByPhase.WithLabelValues(s.phase.String()).Dec()
	}
	waitingMembers.Add(float64(-s.waiting))
	*s = seen{}
}
