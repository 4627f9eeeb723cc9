package rebalance

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"zonewise.dev/apis/v1alpha1"
	"zonewise.dev/cluster/snapshot"
	"zonewise.dev/sim"
	"zonewise.dev/test/clitest"
	"zonewise.dev/test/descheduler"
	"zonewise.dev/test/trace"
)

// day is a cluster of services in which pods are replaced, and batch work and nodes come and go.
type day struct {
	*running
	account
	spread *trace.Spread // of a traced day
	// disturb is called at this interval.
	every   time.Duration
	disturb func()
	// descheduler moves pods, and is run next at nextRun; nil if the ZoneRebalance does.
	descheduler *descheduler.Descheduler
	nextRun     time.Time
	// evictedTogether counts the pods that were evicted in this turn, by their service.
	evictedTogether map[string]int
	rand            *rand.Rand
	replaced        int    // pods of services every ten minutes
	batchCPU        string // of a pod of batch work: a node's
	batch           int    // pods of batch work that there were
	// spare are the nodes that the autoscaler would remove if they still are so at its next look. It has removed and
	// added so many.
	spare          map[string]bool
	removed, added int
}

func newDay(t *testing.T, c *clitest.Cluster, r *v1alpha1.ZoneRebalance, replaced int) *day {
	t.Helper()
	largest := resource.Quantity{}
	for _, node := range snapshot.List[*v1.Node](c.Snapshot) {
		if cpu := node.Status.Allocatable.Cpu(); cpu.Cmp(largest) > 0 {
			largest = *cpu
		}
	}
	d := &day{
		running: run(t, c, r), rand: rand.New(rand.NewPCG(1, 24)), replaced: replaced, batchCPU: largest.String(), spare: map[string]bool{},
		every: 10 * time.Minute, disturb: func() {},
	}
	d.watchEvictions()
	return d
}

// smallDay has nine nodes and ten services.
func smallDay(t *testing.T) *day {
	t.Helper()
	c := clitest.New()
	for i := range 9 {
		c.Node(fmt.Sprintf("node-%d", i), string(rune('a'+i%3)), "16", "64Gi")
	}
	var apps []string
	for i := range 10 {
		app, replicas := fmt.Sprintf("app-%d", i), 3+i%4
		apps = append(apps, app)
		change := clitest.Spread(app)
		if i%2 == 0 {
			change = nil
			c.Policy(app, nil)
		}
		c.Running(app, "1", change, make([]string, replicas)...)
	}
	return newDay(t, c, newRebalance(apps...), 2)
}

// churn is what happens every ten minutes: pods are replaced, batch work comes and goes, and an autoscaler looks at the
// nodes.
func (d *day) churn() {
	for range d.replaced {
		all := sim.List[*v1.Pod](d.sim)
		pod := all[d.rand.IntN(len(all))]
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			continue
		}
		if pod.Labels["app"] == "batch" {
			d.sim.Remove(pod)
		} else {
			require.NoError(d.t, d.sim.Evict(pod))
		}
	}
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Labels["app"] == "batch" && d.sim.Now().Sub(pod.CreationTimestamp.Time) >= time.Hour {
			d.sim.Remove(pod)
		}
	}
	if d.batch++; d.batch%3 == 0 {
		require.NoError(d.t, d.sim.Add(occupant(d.running, fmt.Sprint("batch-", d.batch), "", d.batchCPU, map[string]string{"app": "batch"})))
	}
	d.schedule()
	d.scaleNodes()
	d.schedule()
}

// scaleNodes is an autoscaler: it adds a node while pods wait, and removes nodes that have run nothing for ten minutes,
// or that it has added and that have run no batch work for so long: their pods are evicted. The last node of a zone
// stays.
func (d *day) scaleNodes() {
	used, inZone, waits := map[string]bool{}, map[string]int{}, false
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Labels["app"] == "batch" || !strings.Contains(pod.Spec.NodeName, "-added-") {
			used[pod.Spec.NodeName] = true
		}
		waits = waits || pod.Spec.NodeName == ""
	}
	nodes, before := sim.List[*v1.Node](d.sim), d.spare
	for _, node := range nodes {
		inZone[node.Labels[v1.LabelTopologyZone]]++
	}
	d.spare = map[string]bool{}
	for _, node := range nodes {
		switch zone := node.Labels[v1.LabelTopologyZone]; {
		case used[node.Name]:
		case before[node.Name] && inZone[zone] > 1:
			d.drain(node)
			inZone[zone]--
			d.removed++
		default:
			d.spare[node.Name] = true
		}
	}
	if waits {
		_, err := d.sim.AddNodes(1, d.largestNode(nodes))
		require.NoError(d.t, err)
		d.added++
	}
}

// drain evicts the pods of a node, and removes it.
func (d *day) drain(node *v1.Node) {
	d.t.Helper()
	going := node.DeepCopy()
	going.Spec.Unschedulable = true
	d.put(going)
	for _, pod := range sim.List[*v1.Pod](d.sim) {
		if pod.Spec.NodeName == node.Name && pod.DeletionTimestamp == nil {
			require.NoError(d.t, d.sim.Evict(pod))
		}
	}
	d.schedule()
	d.sim.RemoveNode(node.Name)
}

// largestNode names the first of the nodes with the most CPUs of which the autoscaler has added none like it yet.
func (d *day) largestNode(nodes []*v1.Node) string {
	name, most := "", int64(0)
	for _, node := range nodes {
		_, added := sim.Get[*v1.Node](d.sim, "", node.Name+"-added-1")
		if cpu := node.Status.Allocatable.Cpu().MilliValue(); cpu > most && !added {
			name, most = node.Name, cpu
		}
	}
	return name
}

// last lives through 24 hours: six of them without a loss, and after each of three losses of a zone six more.
func (d *day) last() {
	d.t.Helper()
	d.every, d.disturb = 10*time.Minute, d.churn
	d.live(6 * time.Hour)
	d.steady = d.moves
	for range 3 {
		d.loseZone(string(rune('a' + d.rand.IntN(3))))
		d.live(3 * time.Hour)
		d.judge()
		before := d.moves
		d.live(3 * time.Hour)
		d.steady += d.moves - before
	}
	d.t.Logf("%d nodes were removed and %d added", d.removed, d.added)
	require.Positive(d.t, d.removed)
}

// loseZone loses a zone for 20 minutes.
func (d *day) loseZone(zone string) {
	d.t.Helper()
	loss := d.sim.Lose(func(node *v1.Node) bool { return node.Labels[v1.LabelTopologyZone] == zone })
	d.schedule()
	d.pass(20 * time.Minute)
	require.NoError(d.t, d.sim.ReturnNodes(loss))
	d.schedule()
	d.addLeast()
}

// requireBalanced requires what a ZoneRebalance promises of a history: no more moves than have to be, of a service one
// pod at a time, none that waits, and none while nothing has drifted.
func requireBalanced(t *testing.T, d *day) {
	t.Helper()
	require.Positive(t, d.moves)
	require.LessOrEqual(t, d.moves, d.least)
	require.Zero(t, d.steady, "nothing has drifted, and what has been moved back stays")
	require.Equal(t, 1, d.together)
	require.Zero(t, d.waiting)
	require.Equal(t, v1alpha1.ReasonNotStopped, d.reason(v1alpha1.ConditionStopped))
}

// TestADay: for 24 hours pods are replaced, batch work comes and goes, and an autoscaler removes spare nodes and adds
// others. Nothing is moved but after the return of a zone, and then all services are within maxSkew again.
func TestADay(t *testing.T) {
	compare(t, "a day of nine nodes", smallDay, (*day).last, func(t *testing.T, d *day) {
		requireBalanced(t, d)
		require.Equal(t, d.services(), d.within())
	})
}

// TestADayOfATrace is TestADay on 300 nodes, with services drawn from a production trace.
func TestADayOfATrace(t *testing.T) {
	start := func(t *testing.T) *day { return tracedDay(t, v1.DoNotSchedule) }
	compare(t, "a day of a trace's 300 nodes", start, (*day).last, func(t *testing.T, d *day) {
		requireBalanced(t, d)
		require.Equal(t, 331, d.services())
		require.GreaterOrEqual(t, d.within(), 328)
	})
}

// tracedDay has the nodes and services of test/trace, every other one with a policy and the rest with a constraint.
func tracedDay(t *testing.T, hard v1.UnsatisfiableConstraintAction) *day {
	t.Helper()
	traced := trace.New(trace.Options{Nodes: 300, Services: 331, Pods: 2100, Load: 0.4, Seed: 1})
	spread := traced.Spread(hard)
	r := newRebalance()
	for _, team := range spread.Namespaces {
		r.Spec.Workloads = append(r.Spec.Workloads, v1alpha1.SurvivalWorkload{Namespace: team})
	}
	r.Spec.MaxAtOnce, r.Spec.MaxPerHour = new(int32(40)), new(int32(400))
	d := newDay(t, spread.Cluster, r, 20)
	d.spread = spread
	return d
}

// TestTraceZoneReturns: the smallest zone of that cluster is lost, comes back, and each service grows by a fifth. The
// constraints are wishes.
func TestTraceZoneReturns(t *testing.T) {
	start := func(t *testing.T) *day { return tracedDay(t, v1.ScheduleAnyway) }
	compare(t, "a zone of a trace's 300 nodes returns", start, func(d *day) {
		require.NoError(d.t, d.spread.ReturnZone(d.t.Context(), d.sim))
		d.addLeast()
		d.live(2 * time.Hour)
		d.judge()
		before := d.moves
		d.live(2 * time.Hour)
		d.steady = d.moves - before
	}, func(t *testing.T, d *day) {
		requireBalanced(t, d)
		require.Equal(t, 331, d.services())
		require.GreaterOrEqual(t, float64(d.within()), 0.96*331)
	})
}

// TestAutoscaledDay: after a zone has come back, for a day a node of another pool comes and goes every 45 seconds,
// while a search costs two minutes of the budget. The moves are made all the same.
func TestAutoscaledDay(t *testing.T) {
	compare(t, "a day in which nodes come and go each 45 s", smallDay, func(d *day) {
		d.controller.costs(6 * time.Second)
		spots := 0
		d.every, d.disturb = 45*time.Second, func() {
			node := clitest.New().Node("spot", "a", "8", "32Gi", v1.Taint{Key: "spot", Effect: v1.TaintEffectNoSchedule})
			if spots++; spots%2 == 0 {
				d.sim.RemoveNode(node.Name)
				return
			}
			node.UID = types.UID(fmt.Sprint("spot-", spots))
			d.put(node)
		}
		d.loseZone("c")
		d.live(24 * time.Hour)
		d.judge()
	}, func(t *testing.T, d *day) {
		requireBalanced(t, d)
		require.Equal(t, d.services(), d.within())
	})
}

// TestDriftedClusters are the clusters of TestRandomClusters, without faults.
func TestDriftedClusters(t *testing.T) {
	var all, descheduled account
	for seed := range uint64(10) {
		start := func(t *testing.T) *day {
			w := watch(t, seed)
			d := &day{running: w.running, rand: w.rand, every: time.Hour, disturb: func() {}}
			d.watchEvictions()
			return d
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			a, b := compare(t, "", start, func(d *day) {
				d.live(6 * time.Hour)
				d.judge()
			}, func(t *testing.T, d *day) {
				require.LessOrEqual(t, d.together, 1)
				require.Zero(t, d.waiting)
			})
			all.add(a)
			descheduled.add(b)
		})
	}
	all.log(t, "10 random clusters that have drifted", "ZoneRebalance")
	if *withDescheduler {
		descheduled.log(t, "10 random clusters that have drifted", "descheduler")
	}
	require.Positive(t, all.moves)
}
