package rebalance

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"zonewise.dev/sim"
	"zonewise.dev/test/build"
	"zonewise.dev/test/clitest"
)

// mostRuns is how often the descheduler is run at most.
const mostRuns = 20

// shape is a cluster whose zone c is back: three of the six replicas of a service are in zone a, three in zone b.
type shape struct {
	name string
	// rule is of the service's constraint; empty if it has a policy instead.
	rule v1.UnsatisfiableConstraintAction
	// free are the CPUs that are free in zone c; each replica asks for one.
	free int
	// held: those are held for another service.
	held bool
	// prefers: the replicas would rather be in zones a and b.
	prefers               bool
	descheduler, zonewise outcome
}

// outcome is what came of it.
type outcome struct {
	// runs are those of the descheduler.
	runs, evictions int
	// skew is that of the replicas that run in the end, and waiting are those that do not.
	skew, waiting int
}

// TestDescheduler: of clusters that are alike a ZoneRebalance and, if that is asked for, the descheduler make what the
// table in docs/comparison.md says. The descheduler is run until it has evicted nothing in a run, or 20 times, each
// when the cluster is at rest.
func TestDescheduler(t *testing.T) {
	document, err := os.ReadFile("../../../docs/comparison.md")
	require.NoError(t, err)
	for _, s := range []shape{
		{
			name: "hard, room for all", rule: v1.DoNotSchedule, free: 8,
			descheduler: outcome{runs: 2, evictions: 2}, zonewise: outcome{evictions: 2},
		},
		{
			name: "soft, room for all", rule: v1.ScheduleAnyway, free: 8,
			descheduler: outcome{runs: 2, evictions: 2}, zonewise: outcome{evictions: 2},
		},
		{
			name: "hard, room for one", rule: v1.DoNotSchedule, free: 1,
			descheduler: outcome{runs: 2, evictions: 2, skew: 1, waiting: 1}, zonewise: outcome{evictions: 1, skew: 2},
		},
		{
			name: "soft, room for one", rule: v1.ScheduleAnyway, free: 1,
			descheduler: outcome{runs: 2, evictions: 2, skew: 2}, zonewise: outcome{evictions: 1, skew: 2},
		},
		{
			name: "soft, no room", rule: v1.ScheduleAnyway, free: 0,
			descheduler: outcome{runs: 1, skew: 3}, zonewise: outcome{skew: 3},
		},
		{
			name: "soft, the replicas prefer a and b", rule: v1.ScheduleAnyway, free: 2, prefers: true,
			descheduler: outcome{runs: mostRuns, evictions: 2 * mostRuns, skew: 3}, zonewise: outcome{skew: 3},
		},
		{
			name: "hard, a ZoneReservation holds the room", rule: v1.DoNotSchedule, free: 2, held: true,
			descheduler: outcome{runs: 4, evictions: 4, skew: 1, waiting: 4}, zonewise: outcome{skew: 3},
		},
		{
			name: "a ZoneSpreadPolicy instead of a constraint, room for all", free: 8,
			descheduler: outcome{runs: 1, skew: 3}, zonewise: outcome{evictions: 2},
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			require.Contains(t, string(document), s.row(), "the table in docs/comparison.md")
			d := s.start(t)
			d.live(time.Hour)
			require.Equal(t, s.zonewise, d.outcome(0), "ZoneRebalance")
			require.LessOrEqual(t, d.together, 1, "one replica at a time is away")
			if *withDescheduler {
				d := s.start(t)
				d.addDescheduler()
				require.Equal(t, s.descheduler, d.deschedule(), "descheduler")
			}
		})
	}
}

// row is that of the table.
func (s *shape) row() string {
	d, z := s.descheduler, s.zonewise
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d |",
		s.name, d.runs, d.evictions, d.skew, d.waiting, z.evictions, z.skew, z.waiting)
}

func (s *shape) start(t *testing.T) *day {
	t.Helper()
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		c.Node("node-"+zone, zone, "8", "32Gi")
	}
	c.Running("web", "1", func(p *v1.PodTemplateSpec) {
		if s.rule != "" {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{build.OverZones("web", 1, s.rule)}
		}
		if s.prefers {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
					Weight: 100, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
						{Key: v1.LabelTopologyZone, Operator: v1.NodeSelectorOpIn, Values: []string{"a", "b"}},
					}},
				}},
			}}
		}
	}, clitest.InTurn(6, "node-a", "node-b")...)
	if s.rule == "" {
		c.Policy("web", nil)
	}
	if s.free < 8 {
		c.Pod("batch", "node-c", clitest.Plain(fmt.Sprint(8-s.free), "1Gi"), map[string]string{"app": "batch"})
	}
	if s.held {
		c.Reservation("failover", "failover", "1", 5, map[string]int64{"node-c": int64(s.free)})
	}
	return newDay(t, c, newRebalance("web"), 0)
}

// deschedule runs the descheduler.
func (d *day) deschedule() outcome {
	d.t.Helper()
	runs := 0
	for before := -1; runs < mostRuns && d.moves != before; runs++ {
		before, d.evictedTogether = d.moves, map[string]int{}
		require.NoError(d.t, d.descheduler.Run(d.t.Context()))
		d.schedule()
		d.pass(descheduleEvery)
	}
	return d.outcome(runs)
}

func (d *day) outcome(runs int) outcome {
	in, waiting := d.bound("web"), 0
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Spec.NodeName == "" && pod.Labels["app"] == "web" {
			waiting++
		}
	}
	return outcome{
		runs: runs, evictions: d.moves, skew: max(in["a"], in["b"], in["c"]) - min(in["a"], in["b"], in["c"]), waiting: waiting,
	}
}
