package rebalance

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/internal/pods"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/descheduler"
	"zonewise.dev/test/internal/apiserver"
)

// mostRuns is how often the descheduler is run at most.
const mostRuns = 20

// shape is a cluster whose zone c is back: three of the six replicas of a service are in zone a, three in zone b.
type shape struct {
	name string
	// rule is of the service's constraint; empty if it has a policy instead.
	rule corev1.UnsatisfiableConstraintAction
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

// TestDescheduler puts the descheduler and a ZoneRebalance onto clusters that are alike, with the shipped scheduler. The descheduler is run until
// it has evicted nothing in a run, or 20 times, each when the cluster is at rest. What comes of it is the table in docs/comparison.md.
func TestDescheduler(t *testing.T) {
	document, err := os.ReadFile(filepath.Join(apiserver.Root(t), "docs", "comparison.md"))
	require.NoError(t, err)
	for _, s := range []shape{
		{
			name: "hard, room for all", rule: corev1.DoNotSchedule, free: 8,
			descheduler: outcome{runs: 2, evictions: 2}, zonewise: outcome{evictions: 2},
		},
		{
			name: "soft, room for all", rule: corev1.ScheduleAnyway, free: 8,
			descheduler: outcome{runs: 2, evictions: 2}, zonewise: outcome{evictions: 2},
		},
		{
			name: "hard, room for one", rule: corev1.DoNotSchedule, free: 1,
			descheduler: outcome{runs: 2, evictions: 2, skew: 1, waiting: 1}, zonewise: outcome{evictions: 1, skew: 2},
		},
		{
			name: "soft, room for one", rule: corev1.ScheduleAnyway, free: 1,
			descheduler: outcome{runs: 2, evictions: 2, skew: 2}, zonewise: outcome{evictions: 1, skew: 2},
		},
		{
			name: "soft, no room", rule: corev1.ScheduleAnyway, free: 0,
			descheduler: outcome{runs: 1, skew: 3}, zonewise: outcome{skew: 3},
		},
		{
			name: "soft, the replicas prefer a and b", rule: corev1.ScheduleAnyway, free: 2, prefers: true,
			descheduler: outcome{runs: mostRuns, evictions: 2 * mostRuns, skew: 3}, zonewise: outcome{skew: 3},
		},
		{
			name: "hard, a ZoneReservation holds the room", rule: corev1.DoNotSchedule, free: 2, held: true,
			descheduler: outcome{runs: 4, evictions: 4, skew: 1, waiting: 4}, zonewise: outcome{skew: 3},
		},
		{
			name: "a ZoneSpreadPolicy instead of a constraint, room for all", free: 8,
			descheduler: outcome{runs: 1, skew: 3}, zonewise: outcome{evictions: 2},
		},
	} {
		t.Run(s.name, func(t *testing.T) {
			require.Contains(t, string(document), s.row(), "the table in docs/comparison.md")
			t.Run("descheduler", func(t *testing.T) { require.Equal(t, s.descheduler, s.start(t).deschedule()) })
			t.Run("ZoneRebalance", func(t *testing.T) { require.Equal(t, s.zonewise, s.start(t).rebalance()) })
		})
	}
}

// row is that of the table.
func (s *shape) row() string {
	d, z := s.descheduler, s.zonewise
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %d |", s.name, d.runs, d.evictions, d.skew, d.waiting, z.evictions, z.skew, z.waiting)
}

// beside is a cluster of a shape.
type beside struct {
	*world
	status *v1alpha1.ZoneRebalance
}

func (s *shape) start(t *testing.T) *beside {
	t.Helper()
	c := clitest.New()
	for _, zone := range []string{"a", "b", "c"} {
		c.Node("node-"+zone, zone, "8", "32Gi")
	}
	add := c.Deployment("web", 6, "1", "1Gi", func(p *corev1.PodTemplateSpec) {
		if s.rule != "" {
			constraint := clitest.ZoneSpread("web", 1)
			constraint.WhenUnsatisfiable = s.rule
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{constraint}
		}
		if s.prefers {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 100, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
				}},
			}}}}
		}
	})
	for i := range 6 {
		add([]string{"node-a", "node-b"}[i%2])
	}
	if s.rule == "" {
		c.Policy("web", nil)
	}
	if s.free < 8 {
		c.Pod("batch", "node-c", clitest.Plain(fmt.Sprint(8-s.free), "1Gi"), map[string]string{"app": "batch"})
	}
	if s.held {
		c.Reservation("failover", "failover", "1", 5, map[string]int64{"node-c": int64(s.free)})
	}
	return &beside{world: start(t, c, []clitest.Service{{App: "web", Replicas: 6, WeightOfA: 1}})}
}

// deschedule runs the descheduler.
func (b *beside) deschedule() outcome {
	b.t.Helper()
	program, err := descheduler.New(b.Root, b.Dir, b.Env.KubeConfig)
	require.NoError(b.t, err)
	runs := 0
	for range mostRuns {
		runs++
		before := len(b.evicted)
		require.NoError(b.t, program.Run(b.t.Context()))
		b.awaitRest()
		if len(b.evicted) == before {
			break
		}
	}
	return b.outcome(runs)
}

// awaitRest waits until everything has been seen that was written before, and each replica runs or has been refused by the scheduler.
func (b *beside) awaitRest() {
	b.t.Helper()
	mark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: clitest.Namespace, GenerateName: "mark-"}, Spec: clitest.Plain("1m", "1Mi")}
	withImage(&mark.Spec)
	mark.Spec.SchedulerName = "none"
	b.Make(b.t, mark)
	b.watchUntil("the mark", func() bool { return b.last[mark.UID] != nil })
	require.NoError(b.t, b.Delete(b.t.Context(), mark))
	b.watchUntil("the cluster is at rest", func() bool {
		replicas := 0
		for _, pod := range b.pods {
			if pod.Labels["app"] != "web" {
				continue
			}
			c := pods.Condition(pod, corev1.PodScheduled)
			if !pods.Live(pod) || !pods.Ready(pod) && (c == nil || c.Reason != corev1.PodReasonUnschedulable) {
				return false
			}
			replicas++
		}
		return replicas == 6
	})
}

// rebalance has a ZoneRebalance carried out.
func (b *beside) rebalance() outcome {
	b.t.Helper()
	b.status = &v1alpha1.ZoneRebalance{ObjectMeta: metav1.ObjectMeta{Name: "services"}, Spec: v1alpha1.ZoneRebalanceSpec{
		Mode: v1alpha1.RebalanceEvict, After: &metav1.Duration{}, Cooldown: &metav1.Duration{Duration: time.Minute}, MaxPerHour: ptr.To[int32](200),
		Workloads: []v1alpha1.SurvivalWorkload{{Namespace: clitest.Namespace, PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
	}}
	b.onRebalance = func(r *v1alpha1.ZoneRebalance) { b.status = r }
	b.Make(b.t, b.status)
	b.startController()
	b.watchUntil("nothing is left to move", func() bool { return isOver(b.status) })
	b.awaitRest()
	require.GreaterOrEqual(b.t, b.leastReady, 5, "one replica at a time is away")
	return b.outcome(0)
}

func (b *beside) outcome(runs int) outcome {
	in, waiting := map[string]int{"a": 0, "b": 0, "c": 0}, 0
	for _, pod := range b.running() {
		if zone := b.zones[pod.Spec.NodeName]; pod.Labels["app"] == "web" && zone != "" {
			in[zone]++
		} else if pod.Labels["app"] == "web" {
			waiting++
		}
	}
	return outcome{
		runs: runs, evictions: len(b.evicted), skew: max(in["a"], in["b"], in["c"]) - min(in["a"], in["b"], in["c"]), waiting: waiting,
	}
}
